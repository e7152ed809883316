"""Tests of each agent framework, in the environment that has it: `make test-integrations`."""

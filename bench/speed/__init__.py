"""How fast retcon is beside other engines, measured in one run on one machine: `python -m bench.speed`."""

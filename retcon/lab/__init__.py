"""The laboratory: learning decisions from outcomes, and measuring them. The memory below never imports it."""

"""Terminal screens: emulation, and reading tables from them."""

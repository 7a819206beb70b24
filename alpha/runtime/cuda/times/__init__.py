"""Times at which a device does what it is asked for; `alpha.profile` reads them."""

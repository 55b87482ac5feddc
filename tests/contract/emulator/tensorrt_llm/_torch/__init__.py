"""As upstream: a package whose modules are used."""

"""As upstream: a package with one module that is used."""

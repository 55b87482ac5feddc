"""What `tools.try_image` is made of: a Dockerfile read, its steps run in a clean root, its server asked."""

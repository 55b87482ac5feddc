"""What `tools.make_repository` writes: the models of a deployment, and how Triton wants them spelled."""

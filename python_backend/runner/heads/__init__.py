"""Router heads: small networks that score a token on its model's device, in the step that samples it.

An artefact is a folder with `router.safetensors` and `router.json`. `card` and `vocabulary` need no torch;
`loading` imports it.
"""

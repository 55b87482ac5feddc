"""One engine over several processes: rank 0 tells the others what each step feeds.

Nothing here knows torch, MPI or TensorRT-LLM: an engine brings a `Communicator` and runs `worker.serve`.
"""

"""The demo pair: its task, its vocabulary, its training and its evaluation."""

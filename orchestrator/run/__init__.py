"""The only effects: transport, executor, store, and the transfer of images and weights."""

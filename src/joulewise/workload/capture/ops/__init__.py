"""FLOPs and bytes of operations, from their names and the shapes of their inputs."""

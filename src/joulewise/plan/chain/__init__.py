"""Planning where changing the point costs something: a shortest path around a cycle."""

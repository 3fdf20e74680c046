"""Parts of different ages in one cluster: old clients, gates that differ, objects from before a gate was turned off."""

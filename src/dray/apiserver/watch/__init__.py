"""The objects in memory, one copy per kind that follows the store, and watches over it; each event is encoded once."""

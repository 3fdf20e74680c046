"""Random work on a cluster of real processes while they are killed, stopped and cut off; then the history is checked."""

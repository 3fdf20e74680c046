"""The plugins that come with the scheduler, large ones in a file each, small ones together. They know the framework and the snapshot, not each other."""

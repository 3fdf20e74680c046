"""The plugins that come with the scheduler, one file each. They know the framework and the snapshot, not each other."""

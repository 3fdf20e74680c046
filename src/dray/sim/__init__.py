"""Whole clusters in one process: what `dray up`, `dray demo` and `dray.testing` start.

`control_plane` puts API server, controllers and scheduler (`control_loops`) together, or serves the latter two in another process
through a pipe (`pipe_server`); `nodes` adds node agents with drivers, or a fleet of
simulated nodes. The parts are the ordinary ones, talking through the ordinary client without sockets.

Offline, `simulation` runs the real scheduler over a copy of a cluster's objects on simulated time; `explaining` asks it why a pod
waits, `more_nodes` and `autoscaling` what more nodes would change.
"""

"""Why a pod waits, what would help, and what looks wrong in a cluster.

    world = World.of(objects)                         nodes, pods, claims, slices, classes, ... of one moment
    survey_node(question, node, world)                per request: how many devices pass each test, and who holds the rest
    nearest_misses(survey, world)                     the devices that came closest, with the sub-expression that said no
    what_would_help(question, node, world)            changes that were tried and make it fit
    examine(world)                                    known traps, one finding each with its remedy (`dray doctor`)

`codes` lists every stable reason code with its meaning. What devices a pod gets is decided in `dray.allocator`, what a node
has left in `dray.accounting`; which node filter said no comes in from the scheduler as data. Nothing here reads a clock, a
file or a network: the caller hands in a world.
"""

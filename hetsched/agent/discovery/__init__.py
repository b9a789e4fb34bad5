"""What an agent finds on its machine and how well it is.

    host = discover_host()                              cpus, memory, NUMA
    inventory = Inventory(open_vendors(), host.boot_id, file)   devices under their ids
    watch = DeviceWatch(inventory, Thresholds.of(config.health))
    watch.rescan()                                      look for devices (now and then again)
    describe_node(name, inventory.devices, host)        what the daemon is told
    watch.observe(now_ns)                               readings, what to push, what changed

Below: `vendor.py` is the seam that makers of devices plug into, with a checklist; `registry.py` lists them.
"""

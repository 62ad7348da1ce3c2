"""The servers of a cluster, and which of them to ask about an instance."""

# Redirects that are followed without a pause. Servers that name each other cost no more than one that is down.
MAX_REDIRECTS = 4
# For how many instances owners are remembered.
MOST_OWNERS = 1000


class Cluster:
    """The given servers, a channel to each that was asked, and what they have told of owners."""

    def __init__(self, addresses, open_channel):
        """addresses: HOST:PORT of each. open_channel: makes a channel of one."""
        self.addresses = [address.removeprefix("http://").removeprefix("https://") for address in addresses]
        self.open_channel = open_channel
        self.channels = {}
        self.owners = {}
        self.turn = 0

    def server(self, instance_id):
        """The address to ask: that of the owner if it is known, and does not fail."""
        _, owner = self.owners.get(instance_id, (0, None))
        return owner or self.addresses[self.turn % len(self.addresses)]

    def channel(self, address):
        """The channel to a server. There is one, whatever number of instances it owns."""
        if address not in self.channels:
            self.channels[address] = self.open_channel(address)
        return self.channels[address]

    def told(self, instance_id, owner, epoch):
        """A server has named an owner. Whether to ask that one at once: only if its epoch is not older than the one known.

        An address that was not given is not followed: a server that is wrong cannot send this client anywhere else.
        """
        known, _ = self.owners.get(instance_id, (0, None))
        if owner not in self.addresses or epoch < known:
            return False
        if len(self.owners) >= MOST_OWNERS:
            self.owners.clear()
        self.owners[instance_id] = (epoch, owner)
        return True

    def failed(self, instance_id, address):
        """A server is not the owner, or does not answer: the next one is asked. The epoch stays known."""
        epoch, owner = self.owners.get(instance_id, (0, None))
        if owner == address:
            self.owners[instance_id] = (epoch, None)
        if self.addresses[self.turn % len(self.addresses)] == address:
            self.turn += 1

    def close(self):
        """Closes all channels."""
        for channel in self.channels.values():
            channel.close()

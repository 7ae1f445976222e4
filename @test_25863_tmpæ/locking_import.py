
import locker
locker.barrier.wait()
class ToBeUnpickled(object):
    pass


import threading
barrier = threading.Barrier(2)

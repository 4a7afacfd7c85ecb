"""The datagram endpoint that LTP, MLT, DLCP and OptiReduce share: messages over UDP, by the core in C."""

// Command pause waits for a signal. It holds a pod's namespaces, and serves as a workload that has a GPU and does not
// use it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}

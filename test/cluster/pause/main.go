// Command pause does nothing until it is told to end: what holds a pod's namespaces, and
// a workload that has a GPU and no use for it.
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

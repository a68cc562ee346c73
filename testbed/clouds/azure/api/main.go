// A stand-in for Azure Resource Manager: Microsoft's generated fakes of its Go SDK behind an HTTP server.
//
// The fakes check paths, parse bodies into the SDK's types and write the answers. This program adds what they leave to
// their users: routes (arm.go), long-running operations and permissions (arm.go, permissions.go), resources (compute.go,
// network.go, schedules.go), the metadata service of machines (guest.go), and what tests need: faults, a log of the calls
// and the list of the machines that should run (admin.go).
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
)

const subscription = "00000000-0000-0000-0000-000000000001"

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address of the server, HTTPS with -cert")
	guests := flag.String("guests", "", "address of the metadata service of machines, HTTP")
	namespace := flag.String("guests-netns", "", "path of the network namespace of the metadata service")
	cert, key := flag.String("cert", "", "file of the certificate"), flag.String("key", "", "file of its key")
	flag.Parse()
	c := newCloud()
	f := newFace(c)
	if *guests != "" {
		inside, err := listenIn(*namespace, *guests)
		if err != nil {
			log.Fatal(err)
		}
		go func() { log.Fatal(http.Serve(inside, http.HandlerFunc(f.serveGuests))) }()
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			log.Fatal(err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}})
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"address": listener.Addr().String()})
	log.Fatal(http.Serve(listener, f))
}

// Numbers of the system call that enters a namespace, which the standard library does not have.
var setns = map[string]uintptr{"amd64": 308, "arm64": 268}

// listenIn opens a socket in another network namespace, where it stays.
func listenIn(namespace, address string) (net.Listener, error) {
	if namespace == "" {
		return net.Listen("tcp", address)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	enter := func(path string) error {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, _, failed := syscall.RawSyscall(setns[runtime.GOARCH], file.Fd(), syscall.CLONE_NEWNET, 0); failed != 0 {
			return failed
		}
		return nil
	}
	// The thread's own namespace is kept open: its path would follow the thread.
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if err := enter(namespace); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if back := enter(fmt.Sprintf("/proc/self/fd/%d", home.Fd())); back != nil {
		return nil, back
	}
	return listener, err
}

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// serve hands each connection to its own goroutine, until the listener is closed.
func serve(listener net.Listener, handle func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go handle(conn)
	}
}

// splice copies both ways until one side ends, and closes both.
func splice(near, far net.Conn) {
	var both sync.WaitGroup
	both.Add(2)
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			defer both.Done()
			_, _ = io.Copy(pair[0], pair[1])
			_ = near.Close()
			_ = far.Close()
		}()
	}
	both.Wait()
}

// proxyPeer connects a member with another one. It is an HTTP proxy, which a member asks for connections to all but
// loopback addresses; the user name says which member asks.
func (c *ControlPlane) proxyPeer(conn net.Conn) {
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil || request.Method != http.MethodConnect {
		_ = conn.Close()
		return
	}
	refuse := func() {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		_ = conn.Close()
	}
	host, _, err := net.SplitHostPort(request.Host)
	if err != nil {
		refuse()
		return
	}
	// Of the header only the name matters; that it says Proxy-Authorization is HTTP's wish.
	request.Header.Set("Authorization", request.Header.Get("Proxy-Authorization"))
	from, _, _ := request.BasicAuth()
	c.mu.Lock()
	near, far := c.byIP[from], c.byIP[host]
	c.mu.Unlock()
	if near == nil || far == nil || !near.connect(conn, far) {
		refuse()
		return
	}
	defer near.disconnect(conn)
	if !far.connect(conn, near) {
		refuse()
		return
	}
	defer far.disconnect(conn)
	// From 127.0.0.1: a member believes only peers whose address is in their certificate.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	to, err := dialer.Dial("tcp", far.address(etcdPeerPort))
	if err != nil {
		refuse()
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close()
		_ = to.Close()
		return
	}
	splice(conn, to)
}

// proxyStore is the API server's way to etcd: to a member that is ready, else to any that runs.
func (c *ControlPlane) proxyStore(conn net.Conn) {
	for _, member := range c.storeMembers() {
		far, err := net.Dial("tcp", member.address(etcdClientPort))
		if err != nil {
			continue
		}
		if !member.serve(conn) {
			_ = far.Close()
			continue
		}
		splice(conn, far)
		member.disconnect(conn)
		return
	}
	_ = conn.Close()
}

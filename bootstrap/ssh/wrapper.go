// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import "strconv"

// started is what the wrapper prints to standard error before the script begins: whoever does not see it knows that the
// script never ran, whatever the exit code (a login shell that is /usr/sbin/nologin, a sudo that wants a password).
const started = "\x01quoin\n"

// end closes each script on its way. A connection that breaks ends the standard input like a script that is over, and
// the first half of a script may mean anything: what does not close with it is not run.
const end = "\n#end-of-script"

// reader takes the script from its standard input, LENGTH bytes and no more, so that the rest of standard input is the
// script's own. sh -s would read ahead and swallow it.
const (
	readerHead = `/bin/sh -c 'LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export LC_ALL PATH; q=$(head -c `
	readerTail = `); case $q in *"#end-of-script") ;; *) exit 75;; esac; printf "\001quoin\n" >&2; eval "${q%?#end-of-script}"'`
)

// wrapper is all that shows up in the host's process list.
func (c *Conn) wrapper(length int, sudo bool) string { return "exec " + c.shell(length, sudo) }

// shell is the program that reads the script: a shell, or quoin-run where sudo is limited to that.
func (c *Conn) shell(length int, sudo bool) string {
	bytes := strconv.Itoa(length + len(end))
	switch {
	case !sudo:
		return readerHead + bytes + readerTail
	case c.sudoCommand != "":
		return "sudo -n -- " + Quote(c.sudoCommand) + " " + bytes
	}
	return "sudo -n -- " + readerHead + bytes + readerTail
}

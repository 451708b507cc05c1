// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"os"

	"golang.org/x/sys/unix"
)

// dropCached lets the kernel forget what it holds of a file. It need not succeed.
func dropCached(file *os.File) {
	_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

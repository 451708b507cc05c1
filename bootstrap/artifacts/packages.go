// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A repository goes into a file of one line per repository, so no line may hold another.
var (
	repositoryText = regexp.MustCompile(`^[[:print:]]+$`)
	// passwordText is a user, or a user and a password, in a URL.
	passwordText  = regexp.MustCompile(`://[^/\s]*@`)
	repositoryURL = regexp.MustCompile(`^(https?|file)://[A-Za-z0-9._@+:/\[\]{}%~=?&-]+$`)
)

func (p *Packages) check() error {
	rest := strings.NewReplacer("{{version}}", "", "{{minor}}", "", "{{arch}}", "").Replace(p.Repository)
	switch {
	case p.Repository == "":
		if p.SigningKey != "" {
			return errors.New("a signingKey is given without the repository that it belongs to; give the repository, or leave " +
				"out the key")
		}
		return nil
	case !repositoryText.MatchString(p.Repository):
		return errors.New("the repository is more than one line of plain text; give one deb line, or one URL")
	case strings.ContainsAny(rest, "{}"):
		return errors.New("the repository holds a placeholder that is unknown; known are {{version}}, {{minor}} and {{arch}}")
	case passwordText.MatchString(p.Repository):
		return errors.New("the repository carries a password, which everybody could read who may read this object or the " +
			"host's list of repositories; " +
			"give the address alone and put the password where the host's package manager looks for it " +
			"(/etc/apt/auth.conf.d), or let the host know the repository and leave it out here")
	case p.deb():
		return p.checkDeb()
	case !repositoryURL.MatchString(p.Repository):
		return errors.New(
			`the repository is neither a deb line such as "deb https://packages.example.com/{{minor}}/deb/ /" nor a URL for dnf`)
	}
	return p.checkKey()
}

// deb says that the repository is one for apt.
func (p *Packages) deb() bool {
	return strings.HasPrefix(p.Repository, "deb ") || strings.HasPrefix(p.Repository, "deb\t")
}

// debLine is: deb [ options ] uri suite [component...].
var debLine = regexp.MustCompile(`^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)((?:\s+\S+)*)\s*$`)

func (p *Packages) checkDeb() error {
	parts := debLine.FindStringSubmatch(p.Repository)
	switch {
	case len(parts) < 5 || !repositoryURL.MatchString(parts[2]):
		return errors.New(
			`the deb line is not of the form: deb [options] https://packages.example.com/{{minor}}/deb/ <suite, or / for a ` +
				`flat repository> [components]`)
	case !strings.HasSuffix(parts[3], "/") && strings.TrimSpace(parts[4]) == "":
		return fmt.Errorf("the deb line names the suite %s and no component; add one such as main, or end a flat "+
			"repository's path with /", parts[3])
	case p.SigningKey != "" && strings.Contains(parts[1], "signed-by="):
		return errors.New("the deb line has signed-by and signingKey is given as well; leave out one of them")
	}
	return p.checkKey()
}

const armorBegin, armorEnd = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"

func (p *Packages) checkKey() error {
	text := strings.TrimSpace(p.SigningKey)
	if text != "" && (!strings.HasPrefix(text, armorBegin) || !strings.HasSuffix(text, armorEnd)) {
		return fmt.Errorf("signingKey is no public key in ASCII armor; it begins with %s and ends with %s: gpg --armor "+
			"--export <key>", armorBegin, armorEnd)
	}
	return nil
}

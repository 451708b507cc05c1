// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"
)

// Catalog is what a distribution tells of its releases (S0-30).
type Catalog struct {
	// Tool is the version of the tool that is installed: the only one that it gives to control planes.
	Tool string `json:"tool"`
	// Gates are the previews that are switched on.
	Gates    []string  `json:"gates,omitempty"`
	Releases []Release `json:"releases"`
}

// Release of a distribution.
type Release struct {
	Version string `json:"version"`
	// Released is its date: 2024-01-31. A release without one is older than all that have one, and so is one that is not
	// listed: a list is trimmed from its old end.
	Released string `json:"released,omitempty"`
	// Pools are the versions that pools of a cluster of this release may have; all that the rules allow when there are
	// none.
	Pools []string `json:"pools,omitempty"`
}

// ReadCatalog reads a catalog from YAML.
func ReadCatalog(text string) (Catalog, error) {
	catalog := Catalog{}
	if err := yaml.UnmarshalStrict([]byte(text), &catalog); err != nil {
		return Catalog{}, err
	}
	versions := []string{catalog.Tool}
	for _, release := range catalog.Releases {
		versions = append(append(versions, release.Version), release.Pools...)
		if _, err := time.Parse(time.DateOnly, release.Released); release.Released != "" && err != nil {
			return Catalog{}, fmt.Errorf("release %s: released: %w", release.Version, err)
		}
	}
	for _, version := range versions {
		if _, err := Parse(version); err != nil {
			return Catalog{}, err
		}
	}
	return catalog, nil
}

// release is the entry of the version; nil when it is not listed.
func (c Catalog) release(version *semver.Version) *Release {
	for i := range c.Releases {
		if listed, err := Parse(c.Releases[i].Version); err == nil && Compare(listed, version) == 0 {
			return &c.Releases[i]
		}
	}
	return nil
}

// released is the date of the release, which sorts; empty when it is older than all that have one.
func (r *Release) released() string {
	if r == nil {
		return ""
	}
	return r.Released
}

// day of the release, as the end of a sentence.
func (r *Release) day() string {
	if date := r.released(); date != "" {
		return " on " + date
	}
	return ", which has no date"
}

// lists reports whether pools of the release may have the version.
func (r Release) lists(version *semver.Version) bool {
	return len(r.Pools) == 0 || slices.ContainsFunc(r.Pools, func(pool string) bool {
		listed, err := Parse(pool)
		return err == nil && Compare(listed, version) == 0
	})
}

// newest patch of the version's minor that is listed; empty when that is not later than the version.
func (c Catalog) newest(version *semver.Version) string {
	found := version
	for _, release := range c.Releases {
		if listed, err := Parse(release.Version); err == nil && distance(listed, version) == 0 && Compare(listed, found) > 0 {
			found = listed
		}
	}
	if found == version {
		return ""
	}
	return text(found)
}

// isTool compares to the last letter, but for a leading v.
func (c Catalog) isTool(version string) bool {
	return strings.TrimPrefix(version, "v") == strings.TrimPrefix(c.Tool, "v")
}

// minors are the minors of the releases in their order, each by one release of it.
func (c Catalog) minors() scale {
	var versions []string
	for _, release := range c.Releases {
		versions = append(versions, release.Version)
	}
	return slices.CompactFunc(parsed(versions), func(a, b *semver.Version) bool { return distance(a, b) == 0 })
}

// scale counts minors: along a list (S0-12), or by their numbers where there is none.
type scale []*semver.Version

// at is the place of the version's minor on the list; -1 when it is not there.
func (s scale) at(version *semver.Version) int {
	return slices.IndexFunc(s, func(listed *semver.Version) bool { return distance(listed, version) == 0 })
}

// distance in minors, in either direction. A minor that is not listed is as far from others as its number says.
func (s scale) distance(a, b *semver.Version) uint64 {
	first, second := s.at(a), s.at(b)
	if first < 0 || second < 0 {
		return distance(a, b)
	}
	return uint64(max(first, second) - min(first, second)) //nolint:gosec // places on a list
}

// back is the earliest minor that is not further behind the version than so many minors, in the form v1.36.
func (s scale) back(version *semver.Version, minors uint64) string {
	major, minor := version.Major(), version.Minor()-min(version.Minor(), minors)
	if place := s.at(version); place >= 0 {
		earliest := s[max(place-int(minors), 0)] //nolint:gosec // a few minors
		major, minor = earliest.Major(), earliest.Minor()
	}
	return fmt.Sprintf("v%d.%d", major, minor)
}

// next is the minor that follows the version's, in the form v1.36.
func (s scale) next(version *semver.Version) string {
	major, minor := version.Major(), version.Minor()+1
	if place := s.at(version); place >= 0 && place+1 < len(s) {
		major, minor = s[place+1].Major(), s[place+1].Minor()
	}
	return fmt.Sprintf("v%d.%d", major, minor)
}

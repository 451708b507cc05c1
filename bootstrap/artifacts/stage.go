// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Stageable says why nothing of a source can be brought to a host ahead; empty when something can.
func (s Source) Stageable() string {
	switch {
	case s.Packages != nil:
		return "packages are not brought ahead"
	case s.Preinstalled != nil:
		return "the host carries its version already"
	case s.Pushed():
		return "a bundle that the manager sends is not sent ahead"
	}
	return ""
}

// Stage is what brings to a host ahead what Plan brings it for the same role, with the files that the steps read:
// images are imported as they are there, and files wait in the cache, where the steps of Plan find them. Whatever is
// there then is verified once more, so nothing is promised. Nothing is installed, and no reset has to take anything
// back.
//
// Every step may run again, and be cut off anywhere.
func (s *Supply) Stage(role Role) ([]run.Step, []run.File, error) {
	if why := s.wanted.Stageable(); why != "" {
		return nil, nil, fmt.Errorf("%s cannot be staged: %s", s.wanted.Place(), why)
	}
	files := s.manifest.For(role)
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("the bundle of Kubernetes %s holds nothing for role %s; make the bundle again",
			s.manifest.KubernetesVersion, role)
	}
	steps := []run.Step{{Name: "check-bundle", Script: archScript(s.manifest)}, s.stageRoom(files)}
	steps = append(steps, s.stepsFor(Image, files)...)
	used := map[string]int{}
	for _, file := range files {
		if file.Kind == Image || !s.location.Remote() {
			continue
		}
		steps = append(steps, run.Step{Name: stepName(used, "fetch-"+strings.ReplaceAll(file.Path, "/", "-")),
			Timeout: s.timeoutOf(file), Script: s.library() + fmt.Sprintf(
				"if [ -f %[4]s ] && quoin_sum %[4]s && [ \"$sum\" = %[2]s ]; then exit 0; fi\nquoin_fetch %[1]s %[2]s %[3]d\n",
				ssh.Quote(s.from(file)), file.SHA256, file.Size, ssh.Quote(file.Install))})
	}
	return steps, s.uploads(), nil
}

// stageRoom refuses to take more than half of what is free: the host is to become a node, perhaps another one.
func (s *Supply) stageRoom(files []File) run.Step {
	var script strings.Builder
	script.WriteString("{\n")
	var largest int64
	for _, file := range files {
		switch {
		case file.Kind == Image:
			fmt.Fprintf(&script, "quoin_marked %s || echo %d %s\n", file.SHA256, 4*file.Size,
				ssh.Quote(containerdRoot))
			largest = max(largest, file.Size)
		case s.location.Remote():
			fmt.Fprintf(&script, "[ \"$(quoin_size \"$QUOIN_ROOT/cache/%[1]s\")\" = %[2]d ] || echo %[3]d \"$QUOIN_ROOT\"\n",
				file.SHA256, file.Size, 2*file.Size)
		}
	}
	if s.location.Remote() {
		fmt.Fprintf(&script, "echo %d \"$QUOIN_ROOT\"\n", 2*largest)
	}
	script.WriteString("} | quoin_whole\n")
	return run.Step{Name: "check-room", Script: s.library() + script.String()}
}

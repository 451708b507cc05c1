# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The image of both providers. The binary is built before, so that nothing is pulled:
#   CGO_ENABLED=0 go build -trimpath -o <folder>/manager . && docker build -f Dockerfile <folder>
FROM scratch
COPY manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]

# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# How a host asks the server of a bundle. quoin_ask, which is curl with the options of the bundle, is defined before.

# quoin_origin <url>: scheme, name and port, in the same text however they are written; see package origin.
quoin_origin() {
	rest=${1#*://}
	rest=$(echo "${1%%://*}://${rest%%[/?#]*}" | tr '[:upper:]' '[:lower:]')
	rest=${rest%:}
	case $rest in
	http://*) echo "${rest%:80}" ;;
	*) echo "${rest%:443}" ;;
	esac
}

# quoin_curl <url> <file> <option>...: returns what curl does, and 47 when the server sends us where we do not follow.
quoin_curl() {
	quoin_url=$1 quoin_file=$2
	shift 2
	for hop in 1 2 3 4 5 6 7 8 9 10; do
		had=$(stat -c %s "$quoin_file" 2>/dev/null || echo 0)
		said=$(quoin_ask "$@" --write-out '%{http_code} %{redirect_url}' --output "$quoin_file" -- "$quoin_url")
		code=$?
		# Where a file that is gone on with has moved is not said: curl ends when the answer is no part of it.
		[ $code != 33 ] || said=$(quoin_ask --head --write-out '%{http_code} %{redirect_url}' --output /dev/null -- "$quoin_url" 2>/dev/null)
		case $said in 30[12378]' '?*) ;; *) return $code ;; esac
		# The page that says so is not the file.
		truncate -s "$had" "$quoin_file" || return 23
		to=$(quoin_origin "${said#* }")
		if [ "$to" != "$(quoin_origin "$quoin_url")" ]; then
			quoin_moved="$quoin_url is redirected to $to, which is not followed; give that as the location, or have the server send the files itself"
			echo "$quoin_moved" >&2
			return 47
		fi
		quoin_url=${said#* }
	done
	quoin_moved="$quoin_url is redirected once more, after ten times; correct the location"
	echo "$quoin_moved" >&2
	return 47
}

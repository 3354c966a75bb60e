# shellcheck shell=sh
# Sets got to the SHA-256 of a file by whatever the device has (Android 7 has nothing), else to unable.

digest() {
  if command -v sha256sum >/dev/null 2>&1; then got=$(sha256sum <"$1") || return 1
  elif command -v openssl >/dev/null 2>&1; then got=$(openssl dgst -sha256 <"$1") || return 1
  elif command -v shasum >/dev/null 2>&1; then got=$(shasum -a 256 <"$1") || return 1
  elif toybox sha256sum </dev/null >/dev/null 2>&1; then got=$(toybox sha256sum <"$1") || return 1
  elif busybox sha256sum </dev/null >/dev/null 2>&1; then got=$(busybox sha256sum <"$1") || return 1
  else got=unable; fi
  case $got in *'= '*) got=${got##*= };; *) got=${got%% *};; esac
}

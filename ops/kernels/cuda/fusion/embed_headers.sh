#!/bin/sh
# Prints a C++ source that has the given headers as texts: sh embed_headers.sh HEADER...
# A header is named as sources include it.
set -eu
cat <<'BEGIN'
// Made by embed_headers.sh.
#include "ops/kernels/cuda/fusion/body_headers.h"

namespace weft::cuda {

std::vector<TextHeader> BodyHeaders() {
  return {
BEGIN
for header in "$@"; do
  printf '{"%s", R"weft_text(' "$header"
  cat "$header"
  printf ')weft_text"},\n'
done
cat <<'END'
  };
}

}  // namespace weft::cuda
END

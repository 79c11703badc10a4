// What the command line is made of, compiled once for all of tools/ (see standard.h).

#include "CLI/CLI.hpp"
#include "nlohmann/json.hpp"
#include "third_party/precompiled/standard.h"

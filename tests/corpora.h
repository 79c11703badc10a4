// The shared test data, where this machine has it.
#ifndef WEFT_TESTS_CORPORA_H_
#define WEFT_TESTS_CORPORA_H_

#include <optional>
#include <string>

namespace weft::testing {

// $WEFT_CORPORA: the folder that the archives are unpacked in (CONTRIBUTING.md); nothing when it is
// not set: skip then, and say so.
std::optional<std::string> CorporaFolder();

}  // namespace weft::testing

#endif  // WEFT_TESTS_CORPORA_H_

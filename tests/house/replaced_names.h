// Names that were replaced by those of docs/glossary.md, for the test that keeps them out.
#ifndef WEFT_TESTS_HOUSE_REPLACED_NAMES_H_
#define WEFT_TESTS_HOUSE_REPLACED_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

struct ReplacedName {
  // An identifier; "kMost*" stands for all that begin with kMost, "Most^" for all that go on with a
  // capital letter, "*lent*" for all that have the word in any spelling: lent, is_lent, RunLent.
  // What is no identifier ("reduction: ring") is looked for as it stands.
  std::string name;
  std::string now;
  // Paths that may use it; one that ends with "/" stands for a folder. With `only_in`, other paths
  // may use it too.
  std::vector<std::string> allowed_in = {};
  std::vector<std::string> only_in = {};
  // An identifier of C++ that is a plain word elsewhere: comments, texts and documents may use it.
  bool only_in_code = false;
};

// The table of replaced names.
const std::vector<ReplacedName>& ReplacedNames();

// Where `text` uses one of `names`: "a.cc:7: 'StepSums' is called 'GradientReducer' now".
std::vector<std::string> FindReplacedNames(const std::string& path, std::string_view text,
                                           const std::vector<ReplacedName>& names);

}  // namespace weft::testing

#endif  // WEFT_TESTS_HOUSE_REPLACED_NAMES_H_

#ifndef WEFT_TESTS_HOUSE_GROUPED_NAMES_H_
#define WEFT_TESTS_HOUSE_GROUPED_NAMES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

// The names that several sources of a library in a BUILD.bazel file define for themselves: in
// unnamed namespaces, as static functions, or as macros that stay defined. One text each.
//
// weft_library compiles sources in groups, each as one file. There, functions of one name become
// overloads of each other in silence when their parameters differ. `sources`: texts by path, of all
// files, formatted: what belongs to a namespace begins its line.
std::vector<std::string> FindClashingNames(const std::string& path, std::string_view text,
                                           const std::map<std::string, std::string>& sources);

}  // namespace weft::testing

#endif  // WEFT_TESTS_HOUSE_GROUPED_NAMES_H_

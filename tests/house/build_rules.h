// What BUILD.bazel files say, for tests of the house: rules, labels, visibility. They read the
// usual layout: a rule begins with "name(" and ends with ")", each alone at the begin of a line.
#ifndef WEFT_TESTS_HOUSE_BUILD_RULES_H_
#define WEFT_TESTS_HOUSE_BUILD_RULES_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

// A rule of a BUILD.bazel file, as far as tests look at it.
struct BuildRule {
  std::string kind;                      // "weft_library"
  std::string name;                      // "" where a loop gives it.
  std::vector<std::string> sources;      // Of srcs: files and patterns.
  std::vector<std::string> headers;      // Of hdrs.
  std::vector<std::string> gpu_sources;  // Of gpu_srcs.
  std::vector<std::string> excluded;     // From patterns of either.
  std::vector<std::string> libraries;    // Of deps: "//tensor", ":x".
  bool grouped = true;  // Its sources are compiled in groups where its kind does so.
};

std::vector<BuildRule> ReadBuildRules(std::string_view text);

// A label of another package that a rule names.
struct BuildLabel {
  size_t line = 0;   // From 1 on.
  std::string name;  // "//graph/schedule:action_list"
};

// All of a file in their order, but for those of load() and of visibility.
std::vector<BuildLabel> ReadLabels(std::string_view text);

// The headers that several rules of a BUILD.bazel file list among their sources or headers, one
// text each; a pattern "*.h" lists all of its folder.
std::vector<std::string> FindSharedHeaders(const std::string& path, std::string_view text);

// Rooms that a whole tier may see ("//:graph_users") though nobody outside their folder uses them,
// tests/ aside; one text each. `build_files`: all texts by path.
std::vector<std::string> FindTooVisibleRooms(const std::map<std::string, std::string>& build_files);

// The tests of kernels that run with the machine's instruction set alone: each weft_tests below
// ops/ that has no also_avx2 and no comment above it that names also_avx2 and says why. Kernels for
// GPUs (ops/kernels/cuda/) run on none of them.
std::vector<std::string> FindMissingTwins(const std::string& path, std::string_view text);

}  // namespace weft::testing

#endif  // WEFT_TESTS_HOUSE_BUILD_RULES_H_

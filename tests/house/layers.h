#ifndef WEFT_TESTS_HOUSE_LAYERS_H_
#define WEFT_TESTS_HOUSE_LAYERS_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

// The layers of the engine as a check of the source text: which folder may include which, and which
// folders may see which library. The tables are in layers.cc; docs/architecture.md says why.

// What a C++ file breaks, one text per violation ("graph/pass.cc:7: ..."); empty when it is clean.
// `path` is relative to the repository root.
std::vector<std::string> CheckSource(const std::string& path, std::string_view text);

// The names of communication ops in a file that neither declares nor makes such nodes, one text per
// name: what a node does is asked of KindOf (graph/node_class.h), not of its name. Makers are known
// by WeftOp("Send", ...), Ops(std::string(kWeftDomain), "Send", ...) and spec.op = "Send". Tests
// may compare names.
std::vector<std::string> FindCommunicationNames(const std::string& path, std::string_view text);

// The rings of files that include each other, each as "a/b -> a/c -> a/b"; a header and its source
// are one. `sources`: texts by path. Tests and testing/ are left out.
std::vector<std::string> FindRings(const std::map<std::string, std::string>& sources);

// The files of ours that a text names and that are none of `files`: "docs/x.md:7: names y/z.h,
// which is not there". Looks at comments of C++ and at all of a Markdown file. A name with folders
// is a path from the root or from the text's folder; one without is that of any file.
std::vector<std::string> FindMissingFiles(const std::string& path, std::string_view text,
                                          const std::set<std::string>& files);

// How many subjects lie in each folder itself: a header and its source count once, tests beside the
// code do not, and those in tests/ do.
std::map<std::string, int> CountSubjects(const std::vector<std::string>& paths);

// What CheckSource says, for the labels in a BUILD.bazel file: layers, and rooms too where a rule
// has code. Reads the usual layout: a rule begins with "name(" and ends with ")", each alone at the
// begin of a line.
std::vector<std::string> CheckBuildFile(const std::string& path, std::string_view text);

}  // namespace weft::testing

#endif  // WEFT_TESTS_HOUSE_LAYERS_H_

#include "tests/house/gpu_sources.h"

#include <re2/re2.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/house/build_rules.h"

namespace weft::testing {
namespace {

constexpr char kKernels[] = "ops/kernels/cuda/";

// Those that _SEEN of third_party/cuda/nvcc.bzl lists.
bool IsForGpus(const std::string& header) {
  static const auto* const others = new std::set<std::string>{
      "ops/defs/image/device_function.h", "ops/defs/image/grid_axis.h",
      "ops/defs/image/roi_region.h", "tensor/device_fault.h", "tensor/dtype.h"};
  return absl::StartsWith(header, kKernels) || others->contains(header);
}

// Walks from .cu files to what they include.
class IncludeWalk {
 public:
  explicit IncludeWalk(const std::map<std::string, std::string>& sources) : sources_(sources) {}

  void Visit(const std::string& path) {
    if (!seen_.insert(path).second) return;
    static const RE2 kInclude("(?m)^#include (?:\"([^\"]+)\"|<([^>]+)>)");
    re2::StringPiece rest(sources_.at(path));
    std::string quoted, angled;
    while (RE2::FindAndConsume(&rest, kInclude, &quoted, &angled)) {
      const std::string& header = quoted.empty() ? angled : quoted;
      const bool is_ours = sources_.contains(header);
      if (absl::StartsWith(header, "absl/") || (is_ours && !IsForGpus(header))) {
        violations_.push_back(absl::StrCat(
            path, ": is compiled by nvcc and includes ", header,
            ": give it only ops/kernels/cuda/ and what third_party/cuda/nvcc.bzl lists"));
      } else if (is_ours) {
        Visit(header);
      }
    }
  }

  const std::vector<std::string>& violations() const { return violations_; }

 private:
  const std::map<std::string, std::string>& sources_;
  std::set<std::string> seen_;
  std::vector<std::string> violations_;
};

// Whether a name of gpu_srcs, where "*" is any part of one folder, is that of a file.
bool NamesFile(const std::string& name, absl::string_view file) {
  const std::string pattern = absl::StrJoin(absl::StrSplit(name, '*'), "[^/]*");
  return RE2::FullMatch(re2::StringPiece(file.data(), file.size()), pattern);
}

}  // namespace

std::vector<std::string> FindForeignIncludes(const std::map<std::string, std::string>& sources) {
  IncludeWalk walk(sources);
  for (const auto& [path, text] : sources) {
    if (absl::EndsWith(path, ".cu")) walk.Visit(path);
  }
  return walk.violations();
}

std::vector<std::string> FindKernelsLeftOut(const std::map<std::string, std::string>& build_files,
                                            const std::vector<std::string>& sources) {
  const std::string top = absl::StrCat(kKernels, "BUILD.bazel");
  std::set<std::string> gathered;
  if (const auto file = build_files.find(top); file != build_files.end()) {
    for (const BuildLabel& label : ReadLabels(file->second)) gathered.insert(label.name);
  }
  std::vector<std::pair<std::string, std::string>> listed;  // folder, name in it
  std::vector<std::string> violations;
  for (const auto& [path, text] : build_files) {
    if (!absl::StartsWith(path, kKernels)) continue;
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    for (const BuildRule& rule : ReadBuildRules(text)) {
      if (rule.kind != "weft_cuda_library") continue;
      for (const std::string& name : rule.gpu_sources) listed.emplace_back(folder, name);
      if (path == top) continue;
      const std::string package = absl::StrCat("//", folder.substr(0, folder.size() - 1));
      const std::string label = absl::StrCat(package, ":", rule.name);
      if (gathered.contains(label) || (absl::EndsWith(folder, absl::StrCat("/", rule.name, "/")) &&
                                       gathered.contains(package))) {
        continue;
      }
      violations.push_back(absl::StrCat(path, ": no program has the kernels of ", label,
                                        ": add it to cuda_deps in ", top));
    }
  }
  for (const std::string& source : sources) {
    if (!absl::StartsWith(source, kKernels) || !absl::EndsWith(source, ".cu")) continue;
    const bool is_listed = std::any_of(listed.begin(), listed.end(), [&source](const auto& entry) {
      const auto& [folder, name] = entry;
      return absl::StartsWith(source, folder) &&
             NamesFile(name, absl::string_view(source).substr(folder.size()));
    });
    if (is_listed) continue;
    violations.push_back(
        absl::StrCat(source, ": is in no gpu_srcs of a weft_cuda_library: nobody compiles it"));
  }
  return violations;
}

std::vector<std::string> FindTestsThatRunNowhere(
    const std::map<std::string, std::string>& build_files) {
  static const RE2 kTest("(?ms)^weft_test\\(\\n(.*?)^\\)");
  static const RE2 kName("name = \"([^\"]+)\"");
  std::vector<std::string> violations;
  for (const auto& [path, text] : build_files) {
    re2::StringPiece rest(text);
    std::string rule, name;
    while (RE2::FindAndConsume(&rest, kTest, &rule)) {
      if (!absl::StrContains(rule, "\"//third_party:cuda_enabled\"")) continue;
      if (absl::StrContains(rule, "\"manual\"") && absl::StrContains(rule, "\"with_cuda\""))
        continue;
      RE2::PartialMatch(rule, kName, &name);
      violations.push_back(absl::StrCat(
          path, ": ", name, " is empty without CUDA, so that it would pass: tag it \"manual\" and ",
          "\"with_cuda\", and tools/test runs it in a build with CUDA"));
    }
  }
  return violations;
}

std::vector<std::string> FindKernelsWithoutTest(
    const std::map<std::string, std::string>& build_files,
    const std::map<std::string, std::string>& sources) {
  std::vector<std::string> violations;
  for (const auto& [path, text] : build_files) {
    if (!absl::StartsWith(path, kKernels)) continue;
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    const std::vector<BuildRule> rules = ReadBuildRules(text);
    const auto files_of = [&](const std::vector<std::string>& names) {
      std::vector<std::string> files;
      for (const auto& [source, content] : sources) {
        if (!absl::StartsWith(source, folder)) continue;
        const absl::string_view file = absl::string_view(source).substr(folder.size());
        const bool is_named = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return NamesFile(name, file);
        });
        if (is_named) files.push_back(source);
      }
      return files;
    };
    const auto tests = [&](const BuildRule& rule, const std::string& library) {
      if (!absl::StartsWith(rule.kind, "weft_test")) return false;
      if (std::count(rule.libraries.begin(), rule.libraries.end(), library) == 0) return false;
      const std::vector<std::string> files = files_of(rule.sources);
      return std::any_of(files.begin(), files.end(), [&sources](const std::string& file) {
        return absl::StrContains(sources.at(file), "#include \"ops/testing/emulator/");
      });
    };
    for (const BuildRule& library : rules) {
      if (library.kind != "weft_cuda_library") continue;
      const std::string twin = absl::StrCat(":", library.name, "_emulated");
      const bool is_tested = std::any_of(rules.begin(), rules.end(),
                                         [&](const BuildRule& rule) { return tests(rule, twin); });
      if (is_tested) continue;
      for (const std::string& kernel : files_of(library.gpu_sources)) {
        violations.push_back(absl::StrCat(
            kernel, ": no test of its folder runs it on the emulator: give one ", twin,
            " and, for example, CheckOnEmulatedGpu (ops/testing/emulator/gpu_op_tester.h)"));
      }
    }
  }
  return violations;
}

}  // namespace weft::testing

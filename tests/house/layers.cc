#include "tests/house/layers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/house/build_rules.h"

namespace weft::testing {
namespace {

struct Layer {
  std::string folder;
  std::vector<std::string> may_include;     // Besides itself.
  std::vector<std::string> tests_may_also;  // Its *_test.cc and testing/ on top of that.
  bool everything = false;                  // May include every folder.
};

// Every folder with code in it, from the bottom up.
const std::vector<Layer>& Layers() {
  static const std::vector<Layer>* const layers = new std::vector<Layer>{
      {"platform", {}, {}},
      {"tensor", {"platform"}, {}},
      {"graph", {"tensor", "platform"}, {}},
      {"ops", {"graph", "tensor", "platform"}, {}},
      {"placement", {"graph", "tensor", "platform"}, {"ops"}},
      {"onnx_import", {"graph", "tensor", "platform"}, {"ops"}},
      {"executor", {"ops", "graph", "tensor", "platform"}, {}},
      {"distributed",
       {"executor", "onnx_import", "ops", "graph", "tensor", "platform"},
       {"placement"}},
      {"training",
       {"distributed", "executor", "placement", "onnx_import", "ops", "graph", "tensor",
        "platform"},
       {}},
      {"tools", {}, {}, /*everything=*/true},
      {"tests", {}, {}, /*everything=*/true},
      {"third_party", {}, {}},
  };
  return *layers;
}

// The rooms inside the folders, each list from the bottom up: what lies in a room may use it and
// those before it. A file is in the room with the longest path that its own begins with. Tests may
// use all.
const std::vector<std::vector<std::string>>& Rooms() {
  static const auto* const rooms = new std::vector<std::vector<std::string>>{
      {"platform/", "platform/text/"},
      {"tensor/", "tensor/cuda/", "tensor/lookup/", "tensor/timing/"},
      {"graph/", "graph/schedule/", "graph/passes/", "graph/policy/"},
      {"ops/", "ops/defs/rules/", "ops/defs/", "ops/fusion/", "ops/kernels/cpu/blocks/",
       "ops/kernels/", "ops/kernels/cuda/language/", "ops/kernels/cuda/blocks/",
       "ops/kernels/cuda/", "ops/testing/", "ops/testing/emulator/", "ops/custom/",
       "ops/custom/isolation/", "ops/rewrites/"},
      {"onnx_import/codec/", "onnx_import/", "onnx_import/ops/", "onnx_import/parameters/",
       "onnx_import/edit/", "onnx_import/unfolding/"},
      {"placement/conversions/", "placement/graph_views/", "placement/rules/", "placement/files/",
       "placement/cost/", "placement/sharding/", "placement/pipeline/", "placement/completion/",
       "placement/partition/", "placement/simulation/", "placement/search/"},
      {"executor/interfaces/", "executor/variables/", "executor/memory/", "executor/lowering/",
       "executor/program/", "executor/program/ordering/"},
      {"distributed/nccl/", "distributed/recovery/", "distributed/", "distributed/keys/",
       "distributed/grpc/", "distributed/shared_memory/", "distributed/process/"},
      {"training/records/", "training/data/", "training/adapters/", "training/quantization/",
       "training/scaling/", "training/graph/", "training/checkpoint/", "training/job/",
       "training/recovery/", "training/adaptation/", "training/calibration/",
       "training/verification/"},
      {"tools/console/", "tools/signing/", "tools/flags/", "tools/reports/", "tools/models/",
       "tools/jobs/", "tools/sweep/", "tools/bench/", "tools/doctor/", "tools/chaos/",
       "tools/commands/", "tools/command_line/", "tools/"},
      {"tests/", "tests/attacks/", "tests/cli/", "tests/faults/", "tests/fuzz/", "tests/gpus/",
       "tests/house/", "tests/soak/"},
  };
  return *rooms;
}

// A library that only some places may see. An entry of `headers` that ends in '/' is a folder, one
// that begins with '*' an ending, any other the begin of a header's path.
struct Fence {
  std::string library;
  std::vector<std::string> headers;
  std::string target;                // In //third_party.
  std::vector<std::string> allowed;  // Begins of paths.
};

const std::vector<Fence>& Fences() {
  static const std::vector<Fence>* const fences = new std::vector<Fence>{
      {"gRPC", {"grpc/", "grpcpp/", "*.grpc.pb.h"}, "grpc", {"distributed/grpc/"}},
      {"generated protobuf code",
       {"*.pb.h", "google/protobuf/"},
       "protobuf",
       {"distributed/grpc/", "onnx_import/", "training/data/", "training/records/"}},
      {"ONNX's protobuf classes", {"onnx/"}, "onnx", {"onnx_import/"}},
      {"oneDNN", {"oneapi/", "dnnl"}, "onednn", {"ops/kernels/cpu/"}},
      {"CUDA",
       {"cuda", "cublas", "cudnn", "nccl", "nvrtc", "nvml", "cupti", "curand", "cusparse",
        "cooperative_groups", "mma.h", "cub/", "thrust/"},
       "cuda",
       {"tensor/cuda/", "ops/kernels/cuda/", "distributed/nccl/"}},
      {"OpenSSL", {"openssl/"}, "openssl", {"distributed/keys/", "tools/signing/"}},
      {"libseccomp", {"seccomp.h"}, "seccomp", {"ops/custom/isolation/"}},
      {"the solver of integer programs",
       {"coin/"},
       "cbc",
       {"placement/search/testing/choice_program"}},
      {"the command line parser", {"CLI/"}, "cli11", {"tools/"}},
  };
  return *fences;
}

// What platform may see besides the system: it is Abseil only, and the checksum.
const std::vector<std::string>& LibrariesOfPlatform() {
  static const auto* const libraries = new std::vector<std::string>{"absl", "xxhash"};
  return *libraries;
}

const std::vector<std::string>& TestLibraries() {
  static const auto* const libraries =
      new std::vector<std::string>{"gtest", "gmock", "rapidcheck", "benchmark"};
  return *libraries;
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string TopFolder(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

const Layer* FindLayer(const std::string& folder) {
  for (const Layer& layer : Layers()) {
    if (layer.folder == folder) return &layer;
  }
  return nullptr;
}

bool Contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool StartsWithOneOf(std::string_view path, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [path](const std::string& prefix) {
    return path.substr(0, prefix.size()) == prefix;
  });
}

bool IsTestFile(const std::string& path) {
  return absl::EndsWith(path, "_test.cc") || absl::EndsWith(path, "_benchmark.cc") ||
         absl::StrContains(path, "_test_") || absl::StrContains(path, "/testing/");
}

bool HeaderBelongsTo(const std::string& header, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&header](const std::string& pattern) {
    return pattern[0] == '*' ? absl::EndsWith(header, pattern.substr(1))
                             : absl::StartsWith(header, pattern);
  });
}

// Why code of `from` may not use the folder `to` of ours; nothing when it may.
std::optional<std::string> ForbiddenFolder(const Layer& from, const std::string& to, bool test) {
  if (from.everything || from.folder == to || to == "third_party") return std::nullopt;
  if (Contains(from.may_include, to)) return std::nullopt;
  if (test && Contains(from.tests_may_also, to)) return std::nullopt;
  return absl::StrCat(
      from.folder, "/ may use only ",
      from.may_include.empty() ? "itself" : absl::StrCat(absl::StrJoin(from.may_include, ", ")),
      test && !from.tests_may_also.empty()
          ? absl::StrCat(" (its tests also ", absl::StrJoin(from.tests_may_also, ", "), ")")
          : "",
      ", not ", to, "/");
}

// The place of a path's room in its list; -1 where it has none.
int RoomOf(const std::vector<std::string>& rooms, const std::string& path) {
  int found = -1;
  size_t longest = 0;
  for (size_t i = 0; i < rooms.size(); ++i) {
    if (!absl::StartsWith(path, rooms[i]) || rooms[i].size() <= longest) continue;
    longest = rooms[i].size();
    found = static_cast<int>(i);
  }
  return found;
}

// Why a file may not include a header of the same top folder; nothing when it may.
std::optional<std::string> ForbiddenRoom(const std::string& path, const std::string& header) {
  for (const std::vector<std::string>& rooms : Rooms()) {
    const int from = RoomOf(rooms, path);
    const int to = RoomOf(rooms, header);
    if (from < 0 || to < 0 || to <= from) continue;
    return absl::StrCat(rooms[from], " may use ",
                        from == 0 ? "no other room of its folder"
                                  : absl::StrJoin(rooms.begin(), rooms.begin() + from, ", "),
                        ", not ", rooms[to],
                        " (tests/house/layers.cc lists rooms from the bottom up)");
  }
  return std::nullopt;
}

// Why a product file lies where no room is; nothing when it lies in one. A folder below a room of
// two parts ("ops/defs/conv/") is part of it; one below a whole folder ("graph/") has to be listed.
std::optional<std::string> MissingRoom(const std::string& path) {
  if (IsTestFile(path)) return std::nullopt;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const std::string top = absl::StrCat(TopFolder(path), "/");
  for (const std::vector<std::string>& rooms : Rooms()) {
    if (!absl::StartsWith(rooms.front(), top)) continue;
    const int room = RoomOf(rooms, path);
    const bool is_inside =
        room >= 0 && (rooms[static_cast<size_t>(room)] == folder ||
                      std::count(rooms[static_cast<size_t>(room)].begin(),
                                 rooms[static_cast<size_t>(room)].end(), '/') > 1);
    if (is_inside) return std::nullopt;
    return absl::StrCat(folder, " is not one of the rooms of ", top,
                        "; add it to Rooms() of tests/house/layers.cc, from the bottom up: ",
                        absl::StrJoin(rooms, ", "));
  }
  return std::nullopt;
}

// Why `path` may not see a library of a fence; nothing when it may. tests/ may see all of them.
std::optional<std::string> Fenced(const Fence& fence, const std::string& path) {
  if (StartsWithOneOf(path, fence.allowed)) return std::nullopt;
  if (StartsWithOneOf(path, {"tests/", "third_party/"})) return std::nullopt;
  return absl::StrCat(fence.library, " may be used only under ",
                      absl::StrJoin(fence.allowed, ", "));
}

// Whether every folder may depend on this one.
bool IsPublic(const Layer& layer) {
  return layer.folder == "platform" || layer.folder == "third_party" || layer.folder == "tests";
}

// The header that a line includes, and whether in quotes.
struct Include {
  std::string header;
  bool quoted = false;
};

std::optional<Include> ParseInclude(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "#")) return std::nullopt;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "include")) return std::nullopt;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return std::nullopt;
  const bool quoted = line[0] == '"';
  const size_t end = line.find(quoted ? '"' : '>', 1);
  if (end == absl::string_view::npos) return std::nullopt;
  return Include{std::string(line.substr(1, end - 1)), quoted};
}

// The library of //third_party that a header is of, as its target's name; "" for the system's own.
std::string LibraryOf(const std::string& header) {
  static const auto* const folders =
      new std::vector<std::string>{"absl/",     "benchmark/",  "gmock/",    "gtest/", "hwy/",
                                   "nlohmann/", "rapidcheck/", "yaml-cpp/", "CLI/"};
  for (const std::string& folder : *folders) {
    if (absl::StartsWith(header, folder)) return folder.substr(0, folder.size() - 1);
  }
  for (const char* const name : {"rapidcheck", "xxhash", "zlib", "omp"}) {
    if (header == absl::StrCat(name, ".h")) return name;
  }
  for (const Fence& fence : Fences()) {
    if (HeaderBelongsTo(header, fence.headers)) return fence.target;
  }
  return "";
}

std::optional<std::string> CheckInclude(const Layer& layer, const std::string& path,
                                        const Include& include) {
  const std::string folder = TopFolder(include.header);
  const bool ours = include.quoted && FindLayer(folder) != nullptr;
  for (const Fence& fence : Fences()) {
    if (!HeaderBelongsTo(include.header, fence.headers)) continue;
    if (const auto reason = Fenced(fence, path)) return reason;
  }
  if (ours) {
    if (absl::StrContains(include.header, "/testing/") && !IsTestFile(path) && !layer.everything) {
      return std::string("only tests may use testing/");
    }
    if (folder == layer.folder && !IsTestFile(path)) return ForbiddenRoom(path, include.header);
    return ForbiddenFolder(layer, folder, IsTestFile(path));
  }
  const std::string library = LibraryOf(include.header);
  if (library.empty()) {
    if (!include.quoted) return std::nullopt;
    return std::string(
        "name a file of ours by its path from the repository root, a header of the "
        "system in <>");
  }
  if (Contains(TestLibraries(), library)) {
    if (IsTestFile(path) || layer.everything || layer.folder == "third_party") return std::nullopt;
    return absl::StrCat(library, " is for tests only");
  }
  if (layer.folder == "platform" && !IsTestFile(path) &&
      !Contains(LibrariesOfPlatform(), library)) {
    return absl::StrCat("platform/ may use Abseil only, not ", library);
  }
  return std::nullopt;
}

std::string UnknownFolder(const std::string& path) {
  return absl::StrCat(
      path, ":1: the folder ", TopFolder(path),
      "/ has no layer; add it to the tables of tests/house/layers.cc and docs/architecture.md");
}

// What CheckBuildFile knows of the rule that it is in.
struct RuleContext {
  bool test = false;      // Is a test, or for tests.
  bool has_code = false;  // Has sources or headers; without, it only gathers rooms ("//ops").
};

// The context of the rule that begins at lines[first].
RuleContext ReadContext(const std::string& path, const std::vector<std::string>& lines,
                        size_t first) {
  RuleContext rule;
  rule.test = absl::StrContains(lines[first], "_test(") ||
              absl::StrContains(lines[first], "_tests(") || absl::StrContains(path, "/testing/");
  for (size_t i = first + 1; i < lines.size() && !absl::StartsWith(lines[i], ")"); ++i) {
    rule.test |= absl::StrContains(lines[i], "testonly = True");
    rule.has_code |= absl::StartsWith(lines[i], "    srcs = ") ||
                     absl::StartsWith(lines[i], "    hdrs = ") ||
                     absl::StartsWith(lines[i], "    gpu_srcs = ");
  }
  return rule;
}

// Why a rule in the folder of `path` may not depend on `label`.
std::optional<std::string> CheckLabel(const Layer& layer, const std::string& path,
                                      const std::string& label, const RuleContext& rule) {
  const std::string target = label.substr(2);
  const std::string folder = target.substr(0, target.find_first_of("/:"));
  if (folder == "third_party") {
    const std::string library = target.substr(target.find(':') + 1);
    for (const Fence& fence : Fences()) {
      if (fence.target != library) continue;
      // A fence inside a folder that names files, not folders, is left to the check of includes.
      const std::string package = path.substr(0, path.rfind('/') + 1);
      const bool partly = std::any_of(
          fence.allowed.begin(), fence.allowed.end(),
          [&package](const std::string& allowed) { return absl::StartsWith(allowed, package); });
      if (!partly) return Fenced(fence, path);
    }
    return std::nullopt;
  }
  if (FindLayer(folder) == nullptr) return std::nullopt;
  if (folder == layer.folder && !rule.test && rule.has_code) {
    return ForbiddenRoom(path, absl::StrCat(target.substr(0, target.find(':')), "/"));
  }
  return ForbiddenFolder(layer, folder, rule.test);
}

}  // namespace

std::vector<std::string> CheckSource(const std::string& path, std::string_view text) {
  const Layer* const layer = FindLayer(TopFolder(path));
  if (layer == nullptr) return {UnknownFolder(path)};
  std::vector<std::string> violations;
  if (const auto reason = MissingRoom(path)) {
    violations.push_back(absl::StrCat(path, ":1: ", *reason));
  }
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(View(text), '\n')) {
    ++number;
    const std::optional<Include> include = ParseInclude(line);
    if (!include.has_value()) continue;
    if (const auto reason = CheckInclude(*layer, path, *include)) {
      violations.push_back(
          absl::StrCat(path, ":", number, ": includes ", include->header, ": ", *reason));
    }
  }
  return violations;
}

std::vector<std::string> FindCommunicationNames(const std::string& path, std::string_view text) {
  static const auto* const kNames =
      new std::vector<std::string>{"Send",          "Recv",     "AllReduce", "AllGather",
                                   "ReduceScatter", "AllToAll", "Broadcast", "SumOverReplicas"};
  if (IsTestFile(path) || StartsWithOneOf(path, {"tests/", "ops/defs/", "graph/node_class."})) {
    return {};
  }
  std::vector<std::string> violations;
  int number = 0;
  std::string before;  // what stands before, without spaces
  for (const absl::string_view line : absl::StrSplit(View(text), '\n')) {
    ++number;
    const std::string code(line.substr(0, line.find("//")));
    for (const std::string& name : *kNames) {
      const size_t at = code.find(absl::StrCat("\"", name, "\""));
      if (at == std::string::npos) continue;
      const std::string maker =
          absl::StrCat(before, absl::StrReplaceAll(code.substr(0, at), {{" ", ""}}));
      const bool makes = absl::EndsWith(maker, "WeftOp(") || absl::EndsWith(maker, ".op=") ||
                         absl::EndsWith(maker, "Ops(std::string(kWeftDomain),");
      if (makes) continue;
      violations.push_back(absl::StrCat(path, ":", number, ": names ", name,
                                        "; ask KindOf of graph/node_class.h what a node does"));
    }
    before = absl::StrReplaceAll(code, {{" ", ""}});
  }
  return violations;
}

std::vector<std::string> CheckBuildFile(const std::string& path, std::string_view text) {
  const Layer* const layer = FindLayer(TopFolder(path));
  if (layer == nullptr) return {UnknownFolder(path)};
  const std::vector<std::string> lines = absl::StrSplit(View(text), '\n');
  const bool only_tests = absl::StrContains(View(text), "default_testonly = True");
  const std::vector<BuildLabel> labels = ReadLabels(text);
  auto label = labels.begin();
  std::vector<std::string> violations;
  RuleContext rule;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::EndsWith(lines[i], "(") && lines[i][0] != ' ') rule = ReadContext(path, lines, i);
    rule.test |= only_tests;
    if (absl::StrContains(lines[i], "//visibility:public") && !IsPublic(*layer)) {
      violations.push_back(absl::StrCat(path, ":", i + 1, ": is visible to all: say \"//:",
                                        layer->folder, "_users\", so that Bazel keeps the layers"));
    }
    for (; label != labels.end() && label->line == i + 1; ++label) {
      if (const auto reason = CheckLabel(*layer, path, label->name, rule)) {
        violations.push_back(
            absl::StrCat(path, ":", i + 1, ": depends on ", label->name, ": ", *reason));
      }
    }
  }
  return violations;
}

namespace {

// "graph/pass" of "graph/pass.h" and "graph/pass.cc"; "ops/kernels/cuda/linear/add" of its add.cc,
// add.cu, add_body.h and add_launch.h.
std::string SubjectOf(const std::string& path) {
  absl::string_view subject = path;
  for (const char* const ending : {".h", ".cc", ".cu", "-inl"}) {
    absl::ConsumeSuffix(&subject, ending);
  }
  if (absl::StartsWith(path, "ops/kernels/cuda/") && absl::EndsWith(path, ".h")) {
    for (const char* const ending : {"_body", "_launch"}) absl::ConsumeSuffix(&subject, ending);
  }
  return std::string(subject);
}

// Finds the rings of a graph of names by walking it depth first.
class RingFinder {
 public:
  explicit RingFinder(const std::map<std::string, std::set<std::string>>& edges) : edges_(edges) {}

  std::vector<std::string> Run() {
    for (const auto& [name, next] : edges_) Visit(name);
    return std::move(rings_);
  }

 private:
  void Visit(const std::string& name) {
    const auto on_path = std::find(path_.begin(), path_.end(), name);
    if (on_path != path_.end()) {
      rings_.push_back(absl::StrCat(absl::StrJoin(on_path, path_.end(), " -> "), " -> ", name));
      return;
    }
    const auto next = edges_.find(name);
    if (next == edges_.end() || !done_.insert(name).second) return;
    path_.push_back(name);
    for (const std::string& to : next->second) Visit(to);
    path_.pop_back();
  }

  const std::map<std::string, std::set<std::string>>& edges_;
  std::vector<std::string> path_;
  std::set<std::string> done_;
  std::vector<std::string> rings_;
};

}  // namespace

std::vector<std::string> FindRings(const std::map<std::string, std::string>& sources) {
  std::map<std::string, std::set<std::string>> edges;
  for (const auto& [path, text] : sources) {
    if (IsTestFile(path)) continue;
    for (const absl::string_view line : absl::StrSplit(View(text), '\n')) {
      const std::optional<Include> include = ParseInclude(line);
      if (!include.has_value() || !include->quoted || !sources.contains(include->header)) continue;
      const std::string from = SubjectOf(path), to = SubjectOf(include->header);
      if (from != to) edges[from].insert(to);
    }
  }
  return RingFinder(edges).Run();
}

namespace {

// The headers and sources that a piece of text names.
std::vector<std::string> NamedFiles(absl::string_view text) {
  constexpr absl::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  std::vector<std::string> names;
  size_t begin = text.find_first_of(kLetters);
  while (begin != absl::string_view::npos) {
    const size_t end = std::min(text.find_first_not_of(kLetters, begin), text.size());
    absl::string_view word = text.substr(begin, end - begin);
    const bool is_pattern = begin > 0 && (text[begin - 1] == '*' || text[begin - 1] == '>');
    while (absl::ConsumeSuffix(&word, ".")) {
    }
    // ".cu" alone speaks of all such files.
    const bool is_file =
        word.rfind('.') > 0 &&
        (absl::EndsWith(word, ".h") || absl::EndsWith(word, ".cc") || absl::EndsWith(word, ".cu"));
    // "defs/FAMILY/GROUP.cc" stands for others.
    const bool is_placeholder =
        std::any_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    if (is_file && !is_pattern && !is_placeholder && word[0] != '/' && word[0] != '_') {
      names.emplace_back(word);
    }
    begin = text.find_first_of(kLetters, end);
  }
  return names;
}

// Where the name of a text in `folder` ("" or with '/' at its end) leads.
bool IsOneOf(const std::set<std::string>& files, const std::string& folder, std::string name) {
  std::string from = folder;
  while (absl::StartsWith(name, "../") && !from.empty()) {
    from.resize(from.substr(0, from.size() - 1).rfind('/') + 1);  // npos + 1 is 0
    name.erase(0, 3);
  }
  if (files.contains(name) || files.contains(from + name)) return true;
  const std::string ending = absl::StrCat("/", name);
  const bool is_bare = !absl::StrContains(name, "/");
  return is_bare && std::any_of(files.begin(), files.end(), [&](const std::string& file) {
           return absl::EndsWith(file, ending);
         });
}

}  // namespace

std::vector<std::string> FindMissingFiles(const std::string& path, std::string_view text,
                                          const std::set<std::string>& files) {
  // Examples, and what is not ours.
  static const auto* const kOthers = new std::set<std::string>{"x_test.cc",
                                                               "x_benchmark.cc",
                                                               "square.cc",
                                                               "foreach_target.h",
                                                               "a.cc",
                                                               "x.cc",
                                                               "x.cu",
                                                               "x_body.h",
                                                               "x_launch.h",
                                                               "cuda_runtime.h",
                                                               "cuda_occupancy.h",
                                                               "cublasLt.h",
                                                               "cudnn.h",
                                                               "nccl.h",
                                                               "nvrtc.h"};
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const bool is_code = !absl::EndsWith(path, ".md");
  std::vector<std::string> violations;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(View(text), '\n')) {
    ++number;
    const size_t comment = line.find("//");
    if (is_code && comment == absl::string_view::npos) continue;
    if (is_code) line = line.substr(comment);
    for (const std::string& name : NamedFiles(line)) {
      if (kOthers->contains(name) || IsOneOf(files, folder, name)) continue;
      violations.push_back(
          absl::StrCat(path, ":", number, ": names ", name, ", which is not there"));
    }
  }
  return violations;
}

std::map<std::string, int> CountSubjects(const std::vector<std::string>& paths) {
  std::map<std::string, std::set<std::string>> subjects;
  for (const std::string& path : paths) {
    const bool is_ours =
        absl::EndsWith(path, ".h") || absl::EndsWith(path, ".cc") || absl::EndsWith(path, ".cu");
    const bool is_beside =
        !absl::StartsWith(path, "tests/") &&
        (absl::EndsWith(path, "_test.cc") || absl::EndsWith(path, "_benchmark.cc"));
    if (!is_ours || is_beside) continue;
    subjects[path.substr(0, path.rfind('/'))].insert(SubjectOf(path));
  }
  std::map<std::string, int> counts;
  for (const auto& [folder, names] : subjects) counts[folder] = static_cast<int>(names.size());
  return counts;
}

}  // namespace weft::testing

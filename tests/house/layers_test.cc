#include "tests/house/layers.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tests/house/build_rules.h"
#include "tests/house/gpu_sources.h"
#include "tests/house/grouped_names.h"
#include "tests/house/room_pages.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Planted violations: the checker itself.

TEST(CheckSource, AllowsWhatIsBelow) {
  EXPECT_THAT(CheckSource("graph/pass.cc",
                          "#include \"graph/pass.h\"\n#include <vector>\n"
                          "#include \"absl/status/status.h\"\n#include \"tensor/shape.h\"\n"),
              IsEmpty());
  EXPECT_THAT(CheckSource("tools/train.cc", "#include \"training/loop.h\"\n"), IsEmpty());
}

TEST(CheckSource, RefusesWhatIsAbove) {
  EXPECT_THAT(
      CheckSource("graph/pass.cc", "\n#include \"executor/program.h\"\n"),
      ElementsAre("graph/pass.cc:2: includes executor/program.h: graph/ may use only tensor, "
                  "platform, not executor/"));
  EXPECT_THAT(CheckSource("executor/program/x.h", "#include \"placement/cost.h\""),
              ElementsAre(HasSubstr("not placement/")));
  EXPECT_THAT(CheckSource("placement/cost/x.h", "#include \"ops/kernel.h\""),
              ElementsAre(HasSubstr("not ops/")));
}

TEST(CheckSource, RefusesOddlySpacedIncludes) {
  EXPECT_THAT(CheckSource("tensor/x.cc", "  #  include   \"graph/graph.h\"  // why"),
              ElementsAre(HasSubstr("not graph/")));
}

TEST(CheckSource, LetsTestsUseMoreWhereTheTableSaysSo) {
  EXPECT_THAT(CheckSource("placement/x_test.cc", "#include \"ops/defs/rules/rules.h\""), IsEmpty());
  EXPECT_THAT(CheckSource("placement/x_test.cc", "#include \"executor/program.h\""),
              ElementsAre(HasSubstr("(its tests also ops)")));
}

TEST(CheckSource, KeepsLibrariesInsideTheirFences) {
  const auto check = [](const std::string& path, const std::string& header) {
    return CheckSource(path, "#include \"" + header + "\"").empty();
  };
  EXPECT_FALSE(check("distributed/worker.cc", "grpcpp/server.h"));
  EXPECT_FALSE(check("distributed/worker.cc", "distributed/grpc/worker.grpc.pb.h"));
  EXPECT_TRUE(check("distributed/grpc/server.cc", "grpcpp/server.h"));
  EXPECT_FALSE(check("ops/defs/conv/conv.cc", "oneapi/dnnl/dnnl.hpp"));
  EXPECT_TRUE(check("ops/kernels/cpu/conv/conv.cc", "oneapi/dnnl/dnnl.hpp"));
  EXPECT_FALSE(check("executor/x.cc", "cuda_runtime.h"));
  EXPECT_TRUE(check("tensor/cuda/cuda_runtime_real.cc", "cuda_runtime_api.h"));
  EXPECT_FALSE(check("executor/program/x.cc", "nvrtc.h"));
  EXPECT_FALSE(check("ops/kernels/cpu/conv/conv.cc", "cooperative_groups/reduce.h"));
  EXPECT_TRUE(check("ops/kernels/cuda/linear/matmul.cu", "cuda_fp16.h"));
  EXPECT_FALSE(check("training/x.cc", "onnx/onnx_pb.h"));
  EXPECT_TRUE(check("onnx_import/x.cc", "onnx/onnx_pb.h"));
  EXPECT_FALSE(check("placement/x.cc", "google/protobuf/message.h"));
}

TEST(CheckSource, KeepsPlatformOnAbseil) {
  EXPECT_THAT(CheckSource("platform/x.cc", "#include \"nlohmann/json.hpp\""),
              ElementsAre(HasSubstr("platform/ may use Abseil only, not nlohmann")));
  EXPECT_THAT(CheckSource("platform/checksum.cc", "#include <xxhash.h>"), IsEmpty());
}

TEST(CheckSource, KeepsTestCodeOutOfTheProduct) {
  EXPECT_THAT(CheckSource("graph/x.cc", "#include \"gtest/gtest.h\""),
              ElementsAre(HasSubstr("gtest is for tests only")));
  EXPECT_THAT(CheckSource("graph/x.cc", "#include \"platform/testing/fake_clock.h\""),
              ElementsAre(HasSubstr("only tests may use testing/")));
  EXPECT_THAT(CheckSource("graph/testing/x.cc", "#include \"platform/testing/fake_clock.h\""),
              IsEmpty());
}

TEST(CheckSource, WantsPathsFromTheRoot) {
  EXPECT_THAT(CheckSource("graph/x.cc", "#include \"graph.h\""),
              ElementsAre(HasSubstr("by its path from the repository root")));
}

TEST(CheckSource, WantsALayerForEveryFolder) {
  EXPECT_THAT(CheckSource("misc/x.cc", ""), ElementsAre(HasSubstr("misc/ has no layer")));
}

TEST(CheckBuildFile, RefusesDependenciesOnWhatIsAbove) {
  EXPECT_THAT(CheckBuildFile("graph/BUILD.bazel",
                             "cc_library(\n    name = \"pass\",\n    deps = [\n"
                             "        \"//executor:program\",\n        \"//tensor\",\n    ],\n)\n"),
              ElementsAre(AllOf(HasSubstr("graph/BUILD.bazel:4: depends on //executor:program"),
                                HasSubstr("not executor/"))));
}

TEST(CheckBuildFile, TellsTestsFromTheProduct) {
  const std::string deps = "    name = \"x\",\n    deps = [\"//ops/defs\"],\n)\n";
  EXPECT_THAT(CheckBuildFile("placement/BUILD.bazel", "cc_test(\n" + deps), IsEmpty());
  EXPECT_THAT(CheckBuildFile("placement/BUILD.bazel", "cc_library(\n" + deps),
              ElementsAre(HasSubstr("not ops/")));
  EXPECT_THAT(CheckBuildFile("placement/BUILD.bazel", "cc_library(\n    testonly = True,\n" + deps),
              IsEmpty());
}

TEST(CheckBuildFile, KeepsLibrariesInsideTheirFences) {
  const auto check = [](const std::string& path, const std::string& library) {
    return CheckBuildFile(path, "cc_library(\n    deps = [\"//third_party:" + library + "\"],\n)\n")
        .empty();
  };
  EXPECT_FALSE(check("distributed/BUILD.bazel", "onednn"));
  EXPECT_TRUE(check("ops/kernels/cpu/BUILD.bazel", "onednn"));
  EXPECT_FALSE(check("executor/BUILD.bazel", "grpc"));
  EXPECT_TRUE(check("distributed/grpc/BUILD.bazel", "grpc"));
  EXPECT_TRUE(check("tensor/BUILD.bazel", "cuda"));
}

TEST(CheckBuildFile, WantsFoldersVisibleToTheirUsersOnly) {
  const std::string text = "package(default_visibility = [\"//visibility:public\"])\n";
  EXPECT_THAT(CheckBuildFile("graph/passes/BUILD.bazel", text),
              ElementsAre(HasSubstr("graph/passes/BUILD.bazel:1: is visible to all: say "
                                    "\"//:graph_users\"")));
  EXPECT_THAT(CheckBuildFile("platform/BUILD.bazel", text), IsEmpty());
  EXPECT_THAT(
      CheckBuildFile("graph/BUILD.bazel", "package(default_visibility = [\"//:graph_users\"])\n"),
      IsEmpty());
}

TEST(FindCommunicationNames, RefusesWhatKindOfAnswers) {
  const auto found = [](const std::string& line) {
    return FindCommunicationNames("placement/x.cc", "\n" + line);
  };
  EXPECT_THAT(
      found("  if (node.op != \"AllGather\") return;"),
      ElementsAre("placement/x.cc:2: names AllGather; ask KindOf of graph/node_class.h what "
                  "a node does"));
  EXPECT_THAT(found("  seconds = MeanOf(times, \"Send\");"), ElementsAre(HasSubstr("names Send;")));
  EXPECT_THAT(found("  if (\"Recv\" == op || op ==\n      \"AllReduce\") {"),
              ElementsAre(HasSubstr(":2: names Recv;"), HasSubstr(":3: names AllReduce;")));
}

TEST(FindCommunicationNames, LetsMakersDeclarationsAndTestsBe) {
  const auto is_clean = [](const std::string& path, const std::string& text) {
    return FindCommunicationNames(path, text).empty();
  };
  EXPECT_TRUE(is_clean("placement/x.cc", "b.WeftOp(\"AllReduce\", {x});\nspec.op = \"Recv\";"));
  EXPECT_TRUE(
      is_clean("placement/x.cc", "const ValueId sum = builder.WeftOp(\n    \"AllReduce\","));
  EXPECT_TRUE(is_clean("training/x.cc", "b.Ops(std::string(kWeftDomain), \"Send\", {x}, {}, {});"));
  EXPECT_TRUE(is_clean("placement/x.cc", "int x;  // \"AllReduce\", or nothing"));
  EXPECT_TRUE(is_clean("placement/x.cc", "op == \"Broadcaster\" || op == \"Gather\""));
  const std::string compares = "if (node.op == \"Send\") return;";
  for (const char* const path : {"graph/node_class.cc", "ops/defs/communication/x.cc",
                                 "placement/x_test.cc", "graph/testing/x.cc", "tests/x.cc"}) {
    EXPECT_TRUE(is_clean(path, compares)) << path;
  }
  EXPECT_FALSE(is_clean("graph/node_order.cc", compares));
}

// Bazel itself knows no order of rooms.
TEST(CheckBuildFile, KeepsTheOrderOfRooms) {
  const auto rule = [](const std::string& kind, const std::string& attributes) {
    return kind + "(\n    name = \"x\",\n" + attributes +
           "    deps = [\n        \"//placement/search:plan_search\",\n    ],\n)\n";
  };
  const std::string path = "placement/sharding/BUILD.bazel", code = "    srcs = [\"x.cc\"],\n";
  EXPECT_THAT(
      CheckBuildFile(path, rule("weft_library", code)),
      ElementsAre(AllOf(HasSubstr("placement/sharding/BUILD.bazel:5: depends on "
                                  "//placement/search:plan_search: placement/sharding/ may "
                                  "use placement/conversions/, "),
                        HasSubstr(", not placement/search/ (tests/house/layers.cc lists"))));
  EXPECT_THAT(CheckBuildFile(path, rule("weft_library", "    hdrs = glob([\"*.h\"]),\n")),
              ElementsAre(HasSubstr("not placement/search/")));
  // Downwards.
  EXPECT_THAT(CheckBuildFile(
                  "placement/simulation/BUILD.bazel",
                  "weft_library(\n" + code + "    deps = [\"//placement/cost:cost_model\"],\n)\n"),
              IsEmpty());
  // Tests may use all rooms, and a rule without code only gathers them.
  EXPECT_THAT(CheckBuildFile(path, rule("weft_test", code)), IsEmpty());
  EXPECT_THAT(CheckBuildFile(path, rule("weft_library", code + "    testonly = True,\n")),
              IsEmpty());
  EXPECT_THAT(CheckBuildFile(
                  path, "package(\n    default_testonly = True,\n)\n" + rule("weft_library", code)),
              IsEmpty());
  EXPECT_THAT(CheckBuildFile(path, rule("weft_library", "")), IsEmpty());
}

TEST(CheckBuildFile, ReadsEachLabelOfALine) {
  const std::string begin = "weft_library(\n    srcs = [\"x.cc\"],\n    deps = [";
  EXPECT_THAT(CheckBuildFile("placement/sharding/BUILD.bazel",
                             begin + "\"//graph\", \"//placement/search:x\", \"//ops\"],\n)\n"),
              ElementsAre(HasSubstr(":3: depends on //placement/search:x: "),
                          HasSubstr(":3: depends on //ops: ")));
}

TEST(ReadLabels, LeavesOutLoadsVisibilityAndComments) {
  const std::vector<BuildLabel> labels = ReadLabels(
      "load(\"//third_party:weft.bzl\", \"weft_library\")\n"
      "package(default_visibility = [\n    \"//a:__subpackages__\",\n    \"//b:__pkg__\",\n])\n"
      "weft_library(\n    visibility = [\"//c:__pkg__\"],  # \"//d\"\n"
      "    deps = [\":e\", \"//f:g\", \"//h\"],\n)\n");
  ASSERT_EQ(labels.size(), 2u);
  EXPECT_EQ(labels[0].name, "//f:g");
  EXPECT_EQ(labels[1].name, "//h");
  EXPECT_EQ(labels[1].line, 8u);
}

TEST(FindTooVisibleRooms, NamesTheVisibilityThatFits) {
  const std::string wide = "package(default_visibility = [\"//:placement_users\"])\n";
  const std::string user = "weft_library(\n    deps = [\"//placement/rules:x\"],\n)\n";
  EXPECT_THAT(
      FindTooVisibleRooms({{"placement/rules/BUILD.bazel", wide},
                           {"placement/search/BUILD.bazel", user},
                           {"tests/BUILD.bazel", user}}),
      ElementsAre("placement/rules/BUILD.bazel: nobody outside placement/ and tests/ uses "
                  "placement/rules/: give it the visibility \"//placement:__subpackages__\""));
  EXPECT_THAT(FindTooVisibleRooms(
                  {{"placement/rules/BUILD.bazel", wide}, {"training/job/BUILD.bazel", user}}),
              IsEmpty());
  // A whole folder is what its tier sees of it.
  EXPECT_THAT(FindTooVisibleRooms({{"placement/BUILD.bazel", wide}}), IsEmpty());
}

TEST(FindMissingTwins, WantsTestsOfKernelsWithAvx2Too) {
  const std::string rule = "weft_tests(\n    name = \"tests\",\n";
  EXPECT_THAT(
      FindMissingTwins("ops/defs/conv/BUILD.bazel", "\n" + rule + ")\n"),
      ElementsAre(HasSubstr("ops/defs/conv/BUILD.bazel:2: tests of kernels run with AVX2")));
  EXPECT_THAT(FindMissingTwins("ops/x/BUILD.bazel", rule + "    also_avx2 = True,\n)\n"),
              IsEmpty());
  EXPECT_THAT(
      FindMissingTwins("ops/x/BUILD.bazel", "# No also_avx2: runs no kernel.\n" + rule + ")\n"),
      IsEmpty());
  EXPECT_THAT(FindMissingTwins("graph/BUILD.bazel", rule + ")\n"), IsEmpty());
  EXPECT_THAT(FindMissingTwins("ops/kernels/cuda/linear/BUILD.bazel", rule + ")\n"), IsEmpty());
}

TEST(CheckPage, AnEmptyPageSaysNothing) {
  EXPECT_THAT(CheckPage("graph/x/README.md", "", {}),
              ElementsAre("graph/x/README.md: begins without a title",
                          HasSubstr("graph/x/README.md: says no purpose")));
  EXPECT_THAT(CheckPage("graph/x/README.md", "# graph/x\n\nThings of graphs.\n", {}),
              ElementsAre(HasSubstr("says no purpose")));
  EXPECT_THAT(CheckPage("x", "# x\n\nOne sentence that says what it is for.\n", {}), IsEmpty());
}

TEST(CheckPage, WantsTypesListedAndLawsForMany) {
  const std::string page = "# x\n\nOne sentence that says what it is for.\n";
  RoomFacts facts;
  facts.types = 1;
  EXPECT_THAT(CheckPage("x", page, facts), ElementsAre(HasSubstr("no table and no list")));
  const std::string table = page + "\n| type | header |\n|---|---|\n| `T` | `t.h` |\n";
  EXPECT_THAT(CheckPage("x", table, facts), IsEmpty());
  EXPECT_THAT(CheckPage("x", page + "\n1. `T` in `t.h`\n", facts), IsEmpty());
  facts.types = 5;
  EXPECT_THAT(CheckPage("x", table, facts), ElementsAre(HasSubstr("neither laws nor")));
  EXPECT_THAT(CheckPage("x", table + "\n## Laws\n", facts), IsEmpty());
  EXPECT_THAT(CheckPage("x", table + "\nIt does not run.\n", facts), IsEmpty());
  facts.is_testing = true;
  EXPECT_THAT(CheckPage("x", page, facts), IsEmpty());
}

TEST(CheckPage, WantsAReasonWhereThereIsNoBuildFileAndAnEnd) {
  const std::string page = "# x\n\nOne sentence that says what it is for.\n";
  RoomFacts facts;
  facts.has_build_file = false;
  EXPECT_THAT(CheckPage("x", page, facts), ElementsAre(HasSubstr("no BUILD file")));
  EXPECT_THAT(CheckPage("x", page + "\n## Why it has no BUILD file\n", facts), IsEmpty());
  const std::string long_page = page + std::string(60, '\n');
  EXPECT_THAT(CheckPage("x", long_page, {}), ElementsAre("x: has more than 40 lines"));
  EXPECT_THAT(CheckPage("x", long_page, {.is_room = false}), IsEmpty());
}

TEST(CountTypes, CountsDefinitionsThatStandAlone) {
  EXPECT_EQ(CountTypes("class A;\nstruct B {\n  struct C {};\n};\nclass D final : public B {\n};\n"
                       "enum class E { kF };\n"),
            2);
}

TEST(FindRings, SaysWhoIncludesWhom) {
  const std::map<std::string, std::string> sources = {
      {"graph/a.h", ""},
      {"graph/a.cc", "#include \"graph/a.h\"\n#include \"graph/b.h\"\n"},
      {"graph/b.h", "#include \"graph/c.h\"\n"},
      {"graph/c.h", ""},
      {"graph/c.cc", "#include \"graph/a.h\"\n"},
      {"graph/d.h", "#include \"graph/a.h\"\n"}};
  EXPECT_THAT(FindRings(sources), ElementsAre("graph/a -> graph/b -> graph/c -> graph/a"));
}

TEST(FindRings, AHeaderAndItsSourceAreOne) {
  EXPECT_THAT(FindRings({{"graph/a.h", ""}, {"graph/a.cc", "#include \"graph/a.h\"\n"}}),
              ElementsAre());
}

TEST(CountSubjects, CountsHeaderAndSourceOnceAndNoTests) {
  const std::map<std::string, int> counts =
      CountSubjects({"graph/a.h", "graph/a.cc", "graph/a_test.cc", "graph/b.cc",
                     "graph/passes/c.cc", "README.md", "tests/a_test.cc"});
  EXPECT_EQ(counts.at("graph"), 2);
  EXPECT_EQ(counts.at("graph/passes"), 1);
  EXPECT_EQ(counts.at("tests"), 1);
}

TEST(CountSubjects, AKernelForGpusIsOneInFourFiles) {
  const std::string folder = "ops/kernels/cuda/linear";
  const std::map<std::string, int> counts = CountSubjects(
      {folder + "/add.cc", folder + "/add.cu", folder + "/add_body.h", folder + "/add_launch.h",
       folder + "/mul.cu", "graph/add_body.h", "graph/add.cc"});
  EXPECT_EQ(counts.at(folder), 2);
  EXPECT_EQ(counts.at("graph"), 2);
}

TEST(CheckSource, KeepsTheOrderOfRooms) {
  const std::string include = "#include \"placement/search/plan_search.h\"\n";
  EXPECT_THAT(
      CheckSource("placement/sharding/x.cc", include),
      ElementsAre("placement/sharding/x.cc:1: includes placement/search/plan_search.h: "
                  "placement/sharding/ may use placement/conversions/, "
                  "placement/graph_views/, placement/rules/, placement/files/, "
                  "placement/cost/, not placement/search/ (tests/house/layers.cc lists rooms "
                  "from the bottom up)"));
  EXPECT_THAT(CheckSource("placement/sharding/x_test.cc", include), ElementsAre());
  EXPECT_THAT(CheckSource("ops/defs/conv/x.cc", "#include \"ops/defs/movement/y.h\"\n"),
              ElementsAre());
}

TEST(CheckSource, KeepsTheOrderOfRoomsOfKernelsForGpus) {
  const auto check = [](const std::string& path, const std::string& header) {
    return CheckSource(path, "#include \"ops/kernels/" + header + "\"").empty();
  };
  EXPECT_TRUE(check("ops/kernels/cuda/linear/x.cu", "cuda/blocks/y.h"));
  EXPECT_TRUE(check("ops/kernels/cuda/blocks/x.h", "cuda/language/gpu.h"));
  EXPECT_FALSE(check("ops/kernels/cuda/language/x.h", "cuda/blocks/y.h"));
  EXPECT_FALSE(check("ops/kernels/cuda/blocks/x.cu", "cuda/linear/y.h"));
  EXPECT_FALSE(check("ops/kernels/cpu/conv/x.cc", "cuda/language/gpu.h"));
  EXPECT_TRUE(
      CheckSource("ops/testing/x.h", "#include \"ops/kernels/cuda/language/gpu.h\"").empty());
}

TEST(CheckSource, WantsARoomForEveryFolderInsideAFolder) {
  EXPECT_THAT(CheckSource("placement/magic/x.cc", ""),
              ElementsAre(HasSubstr("placement/magic/ is not one of the rooms of placement/")));
  EXPECT_THAT(CheckSource("graph/magic/x.cc", ""), ElementsAre(HasSubstr("graph/magic/ is not")));
  EXPECT_THAT(CheckSource("ops/defs/magic/x.cc", ""), IsEmpty());
  EXPECT_THAT(CheckSource("placement/testing/x.cc", ""), IsEmpty());
  EXPECT_THAT(CheckSource("tensor/x.cc", ""), IsEmpty());
}

TEST(CheckSource, KnowsTheRoomsOfTheTests) {
  EXPECT_THAT(CheckSource("tests/magic/x.cc", ""),
              ElementsAre(HasSubstr("tests/magic/ is not one of the rooms of tests/")));
  EXPECT_THAT(CheckSource("tests/testing/x.cc", ""), IsEmpty());
  EXPECT_THAT(CheckSource("tests/house/x.cc", "#include \"tests/command_run.h\"\n"), IsEmpty());
  EXPECT_THAT(CheckSource("tests/command_run.cc", "#include \"tests/house/layers.h\"\n"),
              ElementsAre(HasSubstr("tests/ may use no other room of its folder")));
}

TEST(FindSharedHeaders, NamesBothOwners) {
  const std::string first =
      "weft_library(\n    name = \"a\",\n    srcs = [\"a.cc\", \"x.h\"],\n"
      "    hdrs = [\"a.h\"],\n)\n";
  EXPECT_THAT(FindSharedHeaders("graph/BUILD.bazel", first), IsEmpty());
  EXPECT_THAT(
      FindSharedHeaders("graph/BUILD.bazel",
                        first + "weft_library(\n    name = \"b\",\n    hdrs = [\n        "
                                "\"x.h\",\n    ],\n    deps = [\"//y:a.h\"],\n)\n"),
      ElementsAre("graph/BUILD.bazel: the header x.h belongs to a and b; give it to one of them"));
}

TEST(FindSharedHeaders, APatternOwnsAllHeaders) {
  const std::string pattern =
      "weft_library(\n    name = \"all\",\n    srcs = glob(\n        [\"*.cc\"],\n"
      "        exclude = [\"*_test.cc\"],\n    ),\n    hdrs = glob([\"*.h\"]),\n)\n";
  EXPECT_THAT(FindSharedHeaders("x/BUILD.bazel", pattern), IsEmpty());
  EXPECT_THAT(FindSharedHeaders("x/BUILD.bazel", pattern + "weft_library(\n    name = \"b\",\n"
                                                           "    hdrs = [\"y.h\"],\n)\n"),
              ElementsAre(HasSubstr("the header y.h belongs to all and b")));
}

TEST(FindSharedHeaders, LetsRulesReadHeadersAsText) {
  EXPECT_THAT(FindSharedHeaders("x/BUILD.bazel",
                                "weft_library(\n    name = \"a\",\n    hdrs = [\"a.h\"],\n)\n"
                                "filegroup(\n    name = \"headers\",\n    srcs = [\"a.h\"],\n)\n"),
              IsEmpty());
}

TEST(ReadBuildRules, TellsPatternsFromWhatTheyExclude) {
  const std::vector<BuildRule> rules = ReadBuildRules(
      "load(\"x.bzl\", \"y\")\n\nweft_library(\n    name = \"a\",\n"
      "    srcs = [\"a.cc\"] + glob(\n        [\"b/*.cc\"],\n        exclude = [\n"
      "            \"*_test.cc\",\n        ],\n    ),\n"
      "    hdrs = glob([\"*.h\"], exclude = [\"b.h\"]),  # \"c.h\"\n"
      "    grouped = False,\n    deps = [\"d.h\"],\n)\n\n"
      "[weft_test(\n    name = name,\n    srcs = [name + \".cc\"],\n) for name in [\"e\"]]\n");
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].kind, "weft_library");
  EXPECT_EQ(rules[0].name, "a");
  EXPECT_THAT(rules[0].sources, ElementsAre("a.cc", "b/*.cc"));
  EXPECT_THAT(rules[0].headers, ElementsAre("*.h"));
  EXPECT_THAT(rules[0].excluded, ElementsAre("*_test.cc", "b.h"));
  EXPECT_FALSE(rules[0].grouped);
  EXPECT_EQ(rules[1].kind, "weft_test");
  EXPECT_EQ(rules[1].name, "");
  EXPECT_TRUE(rules[1].grouped);
}

// What the names of two sources of a library, each in an unnamed namespace, break.
std::vector<std::string> ClashesOf(const std::string& first, const std::string& second) {
  const auto in_namespace = [](const std::string& text) {
    return "namespace weft {\nnamespace {\n\n" + text +
           "\n\n}  // namespace\n}  // namespace weft\n";
  };
  return FindClashingNames(
      "graph/BUILD.bazel", "weft_library(\n    name = \"x\",\n    srcs = glob([\"*.cc\"]),\n)\n",
      {{"graph/a.cc", in_namespace(first)}, {"graph/b.cc", in_namespace(second)}});
}

TEST(FindClashingNames, NamesBothFilesAndTheWayOut) {
  EXPECT_THAT(
      ClashesOf("int Fold(int x) { return x; }", "int Fold(int x) { return -x; }"),
      ElementsAre("graph/BUILD.bazel: sources of x are compiled as one file, and graph/a.cc and "
                  "graph/b.cc each define Fold: give one of them another name, or share it "
                  "in a header"));
  EXPECT_THAT(ClashesOf("int Fold(int x) { return x; }", "int Unfold(int x) { return -x; }"),
              IsEmpty());
}

TEST(FindClashingNames, FindsOverloads) {
  EXPECT_THAT(ClashesOf("int Fold(int x);\n\nint Other() { return 1; }",
                        "template <typename T, typename U>\nstd::map<T, std::function<U(T)>>\n"
                        "Fold(const T& x, U y) {\n  if (x) {\n    return {};\n  }\n}"),
              ElementsAre(HasSubstr(" Fold:")));
}

TEST(FindClashingNames, FindsEveryKindOfName) {
  const auto clash = [](const std::string& first, const std::string& second) {
    return ClashesOf(first, second).size() == 1;
  };
  EXPECT_TRUE(clash("struct Row {\n  int a = 0;\n};", "class Row final : public Base {};"));
  EXPECT_TRUE(clash("constexpr int kSize = 1;", "const std::string kSize[] = {\"a\", \"b\"};"));
  EXPECT_TRUE(clash("using Ints = std::vector<int>;", "template <typename T>\nusing Ints = T;"));
  EXPECT_TRUE(clash("enum Color { kRed, kBlue = Bit(1, 2) };", "constexpr int kBlue{3};"));
  EXPECT_TRUE(clash("enum class Color { kRed };", "struct [[nodiscard]] Color;"));
  EXPECT_TRUE(clash("std::atomic<int> calls = 0;", "thread_local int calls;"));
  EXPECT_TRUE(clash("#define ROW(a, b) \\\n  a b", "#define ROW(a)"));
}

TEST(FindClashingNames, LeavesWhatOthersDoNotSee) {
  // Inside a type or a function.
  EXPECT_THAT(ClashesOf("struct Row {\n  int Size() { return size; }\n  int size;\n};",
                        "struct Column {\n  int Size() { return size; }\n  int size;\n};"),
              IsEmpty());
  EXPECT_THAT(ClashesOf("int F() {\n  int n = 1;\n  return n;\n}",
                        "int G() {\n  const auto n = [] { return 2; };\n  return n();\n}"),
              IsEmpty());
  EXPECT_THAT(ClashesOf("int Row::Size() const { return 1; }", "int Column::Size() { return 2; }"),
              IsEmpty());
  EXPECT_THAT(ClashesOf("enum class Color { kRed };", "enum class Light { kRed };"), IsEmpty());
  // Told apart by their operands.
  EXPECT_THAT(ClashesOf("bool operator==(const Row& a, const Row& b) { return true; }",
                        "bool operator==(const Column& a, const Column& b) { return true; }"),
              IsEmpty());
  // Undefined again; a use of a macro; a name from elsewhere.
  EXPECT_THAT(ClashesOf("#define ROW 1\n#undef ROW", "#define ROW 2\n#undef ROW"), IsEmpty());
  EXPECT_THAT(ClashesOf("REGISTER(A);\nusing std::move;", "REGISTER(B);\nusing std::move;"),
              IsEmpty());
}

TEST(FindClashingNames, LeavesNamedNamespacesAlone) {
  const std::string library =
      "weft_library(\n    name = \"x\",\n    srcs = [\n        \"a.cc\",\n"
      "        \"b.cc\",\n    ],\n)\n";
  const auto check = [&library](const std::string& first, const std::string& second) {
    return FindClashingNames("graph/BUILD.bazel", library,
                             {{"graph/a.cc", first}, {"graph/b.cc", second}});
  };
  EXPECT_THAT(check("namespace weft {\nint Fold(int x) { return x; }\n}\n",
                    "namespace weft {\nint Fold(bool x) { return x; }\n}\n"),
              IsEmpty());
  EXPECT_THAT(check("namespace weft {\nstatic int Fold(int x) { return x; }\n}\n",
                    "namespace weft {\nnamespace {\nint Fold(bool x);\n}\n}\n"),
              ElementsAre(HasSubstr(" Fold:")));
}

TEST(FindClashingNames, LooksOnlyAtSourcesOfOneGroupedTarget) {
  const std::string name = "namespace {\nint x = 0;\n}  // namespace\n";
  const auto is_clean = [&name](const std::string& folder, const std::string& kind,
                                const std::string& attributes) {
    return FindClashingNames(folder + "/BUILD.bazel",
                             kind + "(\n    name = \"x\",\n" + attributes + ")\n",
                             {{folder + "/a.cc", name},
                              {folder + "/b.cc", name},
                              {folder + "/deeper/a.cc", name},
                              {folder + "/x.h", name}})
        .empty();
  };
  const std::string all = "    srcs = glob([\"*.cc\"]),\n";
  EXPECT_FALSE(is_clean("graph", "weft_library", all));
  EXPECT_FALSE(is_clean("graph", "weft_library", "    srcs = [\"a.cc\", \"deeper/a.cc\"],\n"));
  EXPECT_TRUE(is_clean("graph", "weft_library", all + "    grouped = False,\n"));
  EXPECT_TRUE(is_clean("graph", "weft_tests", all));
  EXPECT_TRUE(is_clean("ops/kernels/cpu/conv", "weft_library", all));
  EXPECT_FALSE(is_clean("ops/kernels/cuda/conv", "weft_cuda_library", all));
  EXPECT_TRUE(is_clean("graph", "weft_library", "    srcs = [\"a.cc\", \"x.h\"],\n"));
  EXPECT_TRUE(is_clean("graph", "weft_library",
                       "    srcs = glob(\n        [\"*.cc\"],\n        exclude = [\n"
                       "            \"b.cc\",\n        ],\n    ),\n"));
}

TEST(FindMissingFiles, NamesWhatIsNotThere) {
  const std::set<std::string> files = {"graph/a.h", "graph/passes/b.cc"};
  EXPECT_THAT(FindMissingFiles("graph/README.md",
                               "`graph/a.h`, `passes/b.cc`, b.cc. ../graph/a.h, *_test.cc", files),
              IsEmpty());
  EXPECT_THAT(FindMissingFiles("docs/x.md", "\nsee `graph/gone.h`", files),
              ElementsAre("docs/x.md:2: names graph/gone.h, which is not there"));
  EXPECT_THAT(FindMissingFiles("graph/a.h", "#include <gone.h>\nint x;  // as in gone.h\n", files),
              ElementsAre("graph/a.h:2: names gone.h, which is not there"));
  EXPECT_THAT(FindMissingFiles("docs/x.md", "`graph/gone.cu`, `x.cu`, .cu files", files),
              ElementsAre("docs/x.md:1: names graph/gone.cu, which is not there"));
}

// The tree itself. The test's own files lead to it: they are links into the repository.
class Tree : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::canonical("WORKSPACE").parent_path();
    ASSERT_TRUE(std::filesystem::exists(root_ / ".bazelrc")) << root_;
  }

  // Paths, relative to the root, of files in the folders of ours.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& top : std::filesystem::directory_iterator(root_)) {
      const std::string name = top.path().filename().string();
      if (!top.is_directory() || top.is_symlink() || name[0] == '.') continue;
      if (name == "build" || name == "runs" || name == "docs") continue;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(top.path())) {
        if (entry.is_regular_file())
          files.push_back(entry.path().lexically_relative(root_).string());
      }
    }
    return files;
  }

  std::string Read(const std::string& path) const {
    absl::StatusOr<std::string> text = RealFileSystem().ReadFile((root_ / path).string());
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  std::filesystem::path root_;
};

bool IsSource(const std::string& path) {
  for (const char* ending : {".cc", ".h", ".cu", ".cuh"}) {
    if (std::filesystem::path(path).extension() == ending) return true;
  }
  return false;
}

TEST_F(Tree, IncludesFollowTheLayers) {
  int seen = 0;
  for (const std::string& path : Files()) {
    if (!IsSource(path)) continue;
    ++seen;
    for (const std::string& violation : CheckSource(path, Read(path))) ADD_FAILURE() << violation;
  }
  EXPECT_GT(seen, 20);
}

// Each comparison by name is one more place that a new op must be added to.
TEST_F(Tree, CommunicationIsToldApartInOnePlace) {
  for (const std::string& path : Files()) {
    if (!IsSource(path)) continue;
    for (const std::string& violation : FindCommunicationNames(path, Read(path))) {
      ADD_FAILURE() << violation;
    }
  }
}

TEST_F(Tree, NoFilesIncludeEachOtherInARing) {
  std::map<std::string, std::string> sources;
  for (const std::string& path : Files()) {
    if (IsSource(path)) sources[path] = Read(path);
  }
  EXPECT_THAT(FindRings(sources), ElementsAre());
}

// A folder with more than 25 subjects says why in its README.
TEST_F(Tree, NoRoomIsCrowded) {
  constexpr int kMaxSubjects = 25;
  const std::map<std::string, int> larger = {{"tests", 50}};
  for (const auto& [folder, subjects] : CountSubjects(Files())) {
    const auto allowed = larger.find(folder);
    if (allowed == larger.end()) {
      EXPECT_LE(subjects, kMaxSubjects) << folder << "/: make rooms inside it";
      continue;
    }
    EXPECT_LE(subjects, allowed->second) << folder << "/: make rooms inside it";
    EXPECT_THAT(Read(folder + "/README.md"), HasSubstr("## Why so many files lie here"));
  }
}

// A page for each folder with code, each with a purpose of its own. docs/custom-ops.md is the page
// of the examples.
TEST_F(Tree, EveryFolderHasAPageThatSaysWhatItIs) {
  std::map<std::string, int> types;
  for (const std::string& path : Files()) {
    const std::string folder = path.substr(0, path.rfind('/'));
    const bool is_ours = !folder.starts_with("third_party") && !folder.ends_with("/examples");
    if (!IsSource(path) || !is_ours) continue;
    types[folder] += path.ends_with(".h") ? CountTypes(Read(path)) : 0;
  }
  EXPECT_GT(types.size(), 90u);
  std::map<std::string, std::string> purposes;
  for (const auto& [folder, count] : types) {
    const std::string path = folder + "/README.md";
    if (!std::filesystem::exists(root_ / path)) {
      ADD_FAILURE() << folder << "/ has no README.md: purpose, types, laws, what it does not do";
      continue;
    }
    RoomFacts facts;
    facts.is_room = folder.find('/') != std::string::npos;
    facts.is_testing = folder.find("/testing") != std::string::npos;
    facts.has_build_file =
        facts.is_testing || std::filesystem::exists(root_ / folder / "BUILD.bazel");
    facts.types = count;
    const std::string text = Read(path);
    for (const std::string& lack : CheckPage(path, text, facts)) ADD_FAILURE() << lack;
    const auto [other, is_new] = purposes.emplace(PurposeOf(text), path);
    EXPECT_TRUE(is_new) << path << " says what " << other->second << " says";
  }
}

TEST_F(Tree, KernelsForGpusIncludeOnlyWhatNvccMaySee) {
  std::map<std::string, std::string> sources;
  for (const std::string& path : Files()) {
    if (IsSource(path)) sources[path] = Read(path);
  }
  EXPECT_THAT(FindForeignIncludes(sources), IsEmpty());
}

TEST_F(Tree, NoKernelForGpusIsLeftOut) {
  std::map<std::string, std::string> build_files;
  const std::vector<std::string> files = Files();
  for (const std::string& path : files) {
    if (std::filesystem::path(path).filename() == "BUILD.bazel") build_files[path] = Read(path);
  }
  EXPECT_THAT(FindKernelsLeftOut(build_files, files), IsEmpty());
  EXPECT_THAT(FindTestsThatRunNowhere(build_files), IsEmpty());
}

TEST_F(Tree, EachKernelForGpusRunsOnTheEmulator) {
  std::map<std::string, std::string> build_files, sources;
  size_t kernels = 0;
  for (const std::string& path : Files()) {
    if (std::filesystem::path(path).filename() == "BUILD.bazel") build_files[path] = Read(path);
    if (IsSource(path)) sources[path] = Read(path);
    kernels += path.ends_with(".cu") ? 1 : 0;
  }
  EXPECT_GT(kernels, 50u);
  EXPECT_THAT(FindKernelsWithoutTest(build_files, sources), IsEmpty());
}

// Comments and documents that name a file of ours name one that is there.
TEST_F(Tree, NamedFilesAreThere) {
  std::vector<std::string> paths = Files();
  for (const auto& entry : std::filesystem::directory_iterator(root_ / "docs")) {
    paths.push_back("docs/" + entry.path().filename().string());
  }
  for (const char* const page : {"README.md", "CONTRIBUTING.md"}) paths.push_back(page);
  const std::set<std::string> files(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    const bool is_text = std::filesystem::path(path).extension() == ".md";
    if ((!IsSource(path) && !is_text) || path.starts_with("tests/house/layers")) continue;
    for (const std::string& violation : FindMissingFiles(path, Read(path), files)) {
      ADD_FAILURE() << violation;
    }
  }
}

TEST_F(Tree, RoomsAreVisibleToWhoUsesThem) {
  std::map<std::string, std::string> build_files;
  for (const std::string& path : Files()) {
    if (std::filesystem::path(path).filename() == "BUILD.bazel") build_files[path] = Read(path);
  }
  EXPECT_GT(build_files.size(), 90u);
  EXPECT_THAT(FindTooVisibleRooms(build_files), IsEmpty());
}

TEST_F(Tree, TestsOfKernelsRunWithAvx2Too) {
  for (const std::string& path : Files()) {
    if (std::filesystem::path(path).filename() != "BUILD.bazel") continue;
    for (const std::string& violation : FindMissingTwins(path, Read(path))) {
      ADD_FAILURE() << violation;
    }
  }
}

TEST_F(Tree, EachHeaderBelongsToOneTarget) {
  for (const std::string& path : Files()) {
    if (std::filesystem::path(path).filename() != "BUILD.bazel") continue;
    for (const std::string& violation : FindSharedHeaders(path, Read(path))) {
      ADD_FAILURE() << violation;
    }
  }
}

TEST_F(Tree, SourcesOfATargetShareNoUnnamedName) {
  std::map<std::string, std::string> sources;
  std::vector<std::string> build_files;
  for (const std::string& path : Files()) {
    if (IsSource(path)) sources[path] = Read(path);
    if (std::filesystem::path(path).filename() == "BUILD.bazel") build_files.push_back(path);
  }
  for (const std::string& path : build_files) {
    for (const std::string& violation : FindClashingNames(path, Read(path), sources)) {
      ADD_FAILURE() << violation;
    }
  }
}

TEST_F(Tree, DependenciesFollowTheLayers) {
  int seen = 0;
  for (const std::string& path : Files()) {
    if (std::filesystem::path(path).filename() != "BUILD.bazel") continue;
    ++seen;
    for (const std::string& violation : CheckBuildFile(path, Read(path))) {
      ADD_FAILURE() << violation;
    }
  }
  EXPECT_GT(seen, 3);
}

}  // namespace
}  // namespace weft::testing

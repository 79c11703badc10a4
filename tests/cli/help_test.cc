// What graph_runner says before it does anything.
#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/command_run.h"
#include "tools/command_line/command_line.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(Help, OverviewListsEveryCommand) {
  const CommandResult result = RunCommand({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  for (const auto& command : AllCommands()) EXPECT_THAT(result.out, HasSubstr(command->name()));
  EXPECT_LE(Lines(result.out), 24);
}

TEST(Help, EveryCommandHasAScreenWithThreeExamples) {
  for (const auto& command : AllCommands()) {
    const CommandResult result = RunCommand({command->name(), "--help"});
    EXPECT_EQ(result.exit_code, 0) << command->name();
    EXPECT_EQ(result.err, "");
    EXPECT_LE(Lines(result.out), 24) << result.out;
    EXPECT_EQ(command->examples().size(), 3u) << command->name();
    for (const std::string& example : command->examples()) {
      EXPECT_THAT(result.out, HasSubstr(example));
      EXPECT_THAT(example, StartsWith("graph_runner " + command->name()));
    }
    size_t line_start = 0;
    for (size_t end = result.out.find('\n'); end != std::string::npos;
         end = result.out.find('\n', line_start)) {
      EXPECT_LE(end - line_start, 100u) << result.out.substr(line_start, end - line_start);
      line_start = end + 1;
    }
  }
}

TEST(Help, AllIsAskedForByName) {
  const CommandResult short_help = RunCommand({"train", "--help"});
  const CommandResult all = RunCommand({"train", "--help=all"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_THAT(short_help.out, ::testing::Not(HasSubstr("--beta1")));
  EXPECT_THAT(all.out, HasSubstr("--beta1"));
  EXPECT_THAT(all.out, HasSubstr("\noptimizer:\n"));
}

TEST(Help, TextOfExample) {
  EXPECT_EQ(RunCommand({"example", "--help"}).out,
            R"(Writes an untrained example model: for images of 28 x 28, or a GPT of any size.

usage: graph_runner example lenet|mlp|swiglu|gpt -o FILE.onnx [--seed S]

  lenet|mlp|swiglu|gpt  the model; of images x [N,1,28,28] with logits [N,10], or of tokens
  -o, --out FILE.onnx   the file to write
  --seed S              seed of the random weights (default 0)
  --output text|json    text, or json for programs

examples:
  graph_runner example lenet -o lenet.onnx
  graph_runner example lenet -o lenet.onnx && graph_runner inspect lenet.onnx
  graph_runner example gpt -o gpt.onnx --layers 24 --width 2048 --heads 16 --without-weights

every option: graph_runner example --help=all
)");
}

TEST(Usage, NoCommandShowsTheOverview) {
  const CommandResult result = RunCommand({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("usage: graph_runner COMMAND"));
}

TEST(Usage, MisspelledCommandIsGuessed) {
  const CommandResult result = RunCommand({"trian", "model.onnx"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "error: unknown command 'trian', did you mean 'train'?\n"
            "  help: graph_runner --help\n");
}

TEST(Usage, MisspelledOptionIsGuessed) {
  const CommandResult result = RunCommand({"run", "model.onnx", "--inptu", "x=x.npy"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "error: unknown option '--inptu', did you mean '--input'?\n"
            "  help: graph_runner run --help\n");
}

TEST(Usage, MissingArgumentIsNamed) {
  const CommandResult result = RunCommand({"inspect"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "error: MODEL is required\n  help: graph_runner inspect --help\n");
}

TEST(Usage, BadValueIsShown) {
  const CommandResult result = RunCommand({"inspect", "m.onnx", "--output", "xml"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "error: --output: 'xml' is not a format; expected text or json\n"
            "  help: graph_runner inspect --help\n");
}

TEST(Usage, VersionGoesToStandardOutput) {
  EXPECT_THAT(RunCommand({"--version"}).out, StartsWith("graph_runner "));
}

}  // namespace
}  // namespace weft::testing

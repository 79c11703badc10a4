// docs/operators.md is what `graph_runner ops` says of a build with CUDA, whose kernels this test
// has on the emulator.
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/command_run.h"

namespace weft::testing {
namespace {

TEST(OperatorTable, TheDocumentIsThatOfThisBuild) {
  std::ifstream file("docs/operators.md");
  ASSERT_TRUE(file.is_open());
  std::ostringstream document;
  document << file.rdbuf();
  const CommandResult result = RunCommand({"ops", "--output", "markdown"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(document.str(), result.out)
      << "make it anew, with --config=cuda: graph_runner ops --output markdown > docs/operators.md";
}

}  // namespace
}  // namespace weft::testing

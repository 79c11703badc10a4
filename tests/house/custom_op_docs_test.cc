// The tutorial's code is the code that is built and tested.
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace weft::testing {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(CustomOpTutorial, ShowsTheExampleWhole) {
  const std::string tutorial = ReadAll("docs/custom-ops.md");
  const std::string example = ReadAll("ops/custom/examples/swiglu.cc");
  EXPECT_FALSE(example.empty());
  EXPECT_NE(tutorial.find("```cpp\n" + example + "```\n"), std::string::npos)
      << "docs/custom-ops.md shows another ops/custom/examples/swiglu.cc";
}

}  // namespace
}  // namespace weft::testing

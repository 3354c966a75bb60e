// Ends well when this system can load the bundle's libstdc++: its C library is new enough then.
#include <exception>

int main() {
  return std::uncaught_exceptions();
}

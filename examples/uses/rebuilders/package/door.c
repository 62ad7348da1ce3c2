/* door FILE PIN: opens (exit code 0) if PIN is a line of FILE. */
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    char line[64];
    FILE *pins = count == 3 ? fopen(arguments[1], "r") : NULL;

    if (pins == NULL) {
        fprintf(stderr, "usage: door FILE PIN\n");
        return 2;
    }
    while (fgets(line, sizeof line, pins) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, arguments[2]) == 0) {
            return 0;
        }
    }
    return 1;
}
